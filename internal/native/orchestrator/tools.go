package orchestrator

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
)

// startArgs are the arguments of start_agent_session.
type startArgs struct {
	Parameters api.Parameters `json:"parameters,omitempty" jsonschema:"What the agent gets; most want {prompt: text}. list_agent_blueprints has the schema of each agent"`
	Agent      string         `json:"agent_name,omitempty" jsonschema:"Which agent; list_agent_blueprints lists them. May be left out if there is one"`
	ProjectDir string         `json:"project_dir,omitempty" jsonschema:"The folder to work in; default the caller's"`
	Mode       string         `json:"mode,omitempty" jsonschema:"sync waits for the result; async_poll returns at once, ask with get_agent_session_status; async_callback returns at once, and your session is resumed with the result. Default sync"`
}

// resumeArgs are the arguments of resume_agent_session.
type resumeArgs struct {
	Session    string         `json:"session_id" jsonschema:"The session to go on with"`
	Parameters api.Parameters `json:"parameters,omitempty" jsonschema:"What the agent gets, as at its start"`
	Mode       string         `json:"mode,omitempty" jsonschema:"sync, async_poll or async_callback, as at the start. Default sync"`
}

// startPrompt and resumePrompt are the arguments of the short forms.
type startPrompt struct {
	Prompt     string `json:"prompt" jsonschema:"What the agent is to do"`
	Agent      string `json:"agent_name,omitempty" jsonschema:"Which agent; list_agent_blueprints lists them. May be left out if there is one"`
	ProjectDir string `json:"project_dir,omitempty" jsonschema:"The folder to work in; default the caller's"`
	Mode       string `json:"mode,omitempty" jsonschema:"sync, async_poll or async_callback. Default sync"`
}

type resumePrompt struct {
	Session string `json:"session_id" jsonschema:"The session to go on with"`
	Prompt  string `json:"prompt" jsonschema:"What the agent is to do next"`
	Mode    string `json:"mode,omitempty" jsonschema:"sync, async_poll or async_callback. Default sync"`
}

type sessionArg struct {
	Session string `json:"session_id" jsonschema:"The agent's session"`
}

type none struct{}

// started is the answer to a start: the result, or with another mode than sync that there
// is none yet.
type started struct {
	Session string          `json:"session_id"`
	Status  string          `json:"status,omitempty"`
	Text    *string         `json:"result_text,omitempty"`
	Data    json.RawMessage `json:"result_data,omitempty"`
}

// blueprints is the answer of list_agent_blueprints.
type blueprints struct {
	Agents []blueprint `json:"agents"`
}

type blueprint struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Procedural  bool            `json:"procedural,omitempty"`
	Parameters  json.RawMessage `json:"parameters_schema,omitempty"`
	Result      json.RawMessage `json:"output_schema,omitempty"`
}

// sessions is the answer of list_agent_sessions.
type sessions struct {
	Sessions []status `json:"sessions"`
}

type status struct {
	Session string `json:"session_id"`
	Agent   string `json:"agent_name"`
	Status  string `json:"status"`
	Last    string `json:"last_run,omitempty"` // the state of its last run
}

// deleted is the answer of delete_all_agent_sessions.
type deleted struct {
	Deleted []string `json:"deleted"`
	// Kept are those that could not be closed, with the reason.
	Kept map[string]string `json:"kept,omitempty"`
}

func (s *server) addTools(srv *mcp.Server) {
	t, f := true, false
	starts := &mcp.ToolAnnotations{DestructiveHint: &f, OpenWorldHint: &t}
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &f}
	add(srv, &mcp.Tool{Name: "start_agent_session", Annotations: starts, Description: "Start an agent. It works in a session of its own. In the mode sync the answer is its result."},
		func(ctx context.Context, c call, in startArgs) (started, error) {
			return s.begin(ctx, c, api.NewRun{Agent: in.Agent, Parameters: in.Parameters, ProjectDir: in.ProjectDir, Mode: in.Mode})
		})
	add(srv, &mcp.Tool{Name: "resume_agent_session", Annotations: starts, Description: "Give an agent that has ended its work something more to do in the same session."},
		func(ctx context.Context, c call, in resumeArgs) (started, error) {
			return s.begin(ctx, c, api.NewRun{Session: in.Session, Parameters: in.Parameters, Mode: in.Mode})
		})
	add(srv, &mcp.Tool{Name: "start_session", Annotations: starts, Description: "Start an agent with a prompt: start_agent_session in short."},
		func(ctx context.Context, c call, in startPrompt) (started, error) {
			return s.begin(ctx, c, api.NewRun{Agent: in.Agent, Parameters: api.Parameters{"prompt": in.Prompt}, ProjectDir: in.ProjectDir, Mode: in.Mode})
		})
	add(srv, &mcp.Tool{Name: "resume_session", Annotations: starts, Description: "Resume an agent with a prompt: resume_agent_session in short."},
		func(ctx context.Context, c call, in resumePrompt) (started, error) {
			return s.begin(ctx, c, api.NewRun{Session: in.Session, Parameters: api.Parameters{"prompt": in.Prompt}, Mode: in.Mode})
		})
	add(srv, &mcp.Tool{Name: "list_agent_blueprints", Annotations: reads, Description: "The agents that you may start, with what they want."}, s.listBlueprints)
	add(srv, &mcp.Tool{Name: "list_agent_sessions", Annotations: reads, Description: "The sessions of the agents that you have started."}, s.listSessions)
	add(srv, &mcp.Tool{Name: "get_agent_session_status", Annotations: reads, Description: "How an agent's session does: pending, running, or idle when it has ended its work; last_run says how: completed, failed or stopped."},
		func(ctx context.Context, c call, in sessionArg) (status, error) {
			a, err := s.agents.Session(ctx, c.caller, in.Session)
			if err != nil || a.Run == "" {
				return status{a.ID, a.Agent, a.State, ""}, err
			}
			run, err := s.agents.Run(ctx, c.caller, a.Run, false)
			return status{a.ID, a.Agent, a.State, run.State}, err
		})
	add(srv, &mcp.Tool{Name: "get_agent_session_result", Annotations: reads, Description: "The result of the last work of an agent's session that has ended."}, s.result)
	add(srv, &mcp.Tool{Name: "delete_all_agent_sessions", Annotations: &mcp.ToolAnnotations{DestructiveHint: &t, OpenWorldHint: &f, IdempotentHint: true}, Description: "Stop all agents that you have started, and close their sessions."}, s.deleteAll)
}

func (s *server) listBlueprints(ctx context.Context, c call, _ none) (blueprints, error) {
	all, err := s.usable(ctx, c)
	out := blueprints{Agents: []blueprint{}}
	for _, a := range all {
		out.Agents = append(out.Agents, blueprint{a.Name, a.Description, a.Procedural, a.Parameters, a.Result})
	}
	return out, err
}

// usable are the agents that the caller may start and that can be started.
func (s *server) usable(ctx context.Context, c call) ([]api.Agent, error) {
	all, err := s.agents.Blueprints(ctx, c.caller)
	return slices.DeleteFunc(slices.Clone(all), func(a api.Agent) bool { return len(a.Problems) > 0 }), err
}

func (s *server) listSessions(ctx context.Context, c call, _ none) (sessions, error) {
	all, err := s.agents.Sessions(ctx, c.caller)
	out := sessions{Sessions: []status{}}
	for _, a := range all {
		out.Sessions = append(out.Sessions, status{a.ID, a.Agent, a.State, ""})
	}
	return out, err
}

func (s *server) deleteAll(ctx context.Context, c call, _ none) (deleted, error) {
	all, err := s.agents.Sessions(ctx, c.caller)
	out := deleted{Deleted: []string{}}
	for _, a := range slices.Backward(all) {
		if err := s.agents.CloseAgent(ctx, c.caller, a.ID); err != nil {
			if out.Kept == nil {
				out.Kept = make(map[string]string)
			}
			out.Kept[a.ID] = err.Error()
			continue
		}
		out.Deleted = append(out.Deleted, a.ID)
	}
	return out, err
}
