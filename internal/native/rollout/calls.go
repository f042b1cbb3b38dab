package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// sessionArgs name a session, by either name of the argument.
type sessionArgs struct {
	RK      string `json:"rk_session_id"`
	Session string `json:"session_id"`
}

// which is the session that a call means; empty for none.
func (in *sessionArgs) which(ctx context.Context, s Sessions, caller string) (string, error) {
	named := in.RK
	switch {
	case named == "":
		named = in.Session
	case in.Session != "" && in.Session != named:
		return "", invalid("rk_session_id and session_id name two sessions; give one of them")
	}
	return s.Which(ctx, caller, named)
}

// must is the same where there has to be one.
func (in *sessionArgs) must(ctx context.Context, s Sessions, caller string) (string, error) {
	id, err := in.which(ctx, s, caller)
	if err == nil && id == "" {
		err = invalid("no session is named, and this connection has opened none: name it in rk_session_id, or open one with initialize_session")
	}
	return id, err
}

// memberArgs name an instance of a backend in a session.
type memberArgs struct {
	sessionArgs
	Backend  string          `json:"backend_name_ref"`
	Instance json.RawMessage `json:"instance_id"`
}

// find is the session that a call means, and what that calls the instance.
func (in *memberArgs) find(ctx context.Context, s Sessions, caller string) (id, member string, err error) {
	if in.Backend == "" {
		return "", "", invalid("backend_name_ref must name a backend")
	}
	if id, err = in.must(ctx, s, caller); err != nil {
		return "", "", err
	}
	member, ok := in.member()
	if ok {
		return id, member, nil
	}
	now, err := s.Show(ctx, caller, id)
	switch {
	case err != nil:
		return "", "", err
	case !now.Closed.IsZero():
		return "", "", ended(now)
	}
	var has []string
	for _, m := range now.Members {
		if backend, _, _ := strings.Cut(m.Server, "~"); backend == in.Backend {
			has = append(has, m.Server)
		}
	}
	if len(has) == 0 {
		return id, in.Backend, nil // which the session lacks, and says so
	}
	list := strings.Join(has[:min(len(has), maxNamed)], ", ")
	if len(has) > maxNamed {
		list += fmt.Sprintf(" and %d more", len(has)-maxNamed)
	}
	return "", "", invalid("instance_id %s is no instance of backend %s; session %s has %s", shown(in.Instance), quote(in.Backend), id, list)
}

// maxNamed is how many instances an error names.
const maxNamed = 20

// member is what a session calls the instance, if it can be one of the backend.
func (in *memberArgs) member() (string, bool) {
	var id string
	if len(in.Instance) == 0 || string(in.Instance) == "null" {
		return in.Backend, true
	} else if json.Unmarshal(in.Instance, &id) != nil {
		id = string(in.Instance) // a number, or nothing that it may be
		if _, err := strconv.ParseUint(id, 10, 32); err != nil {
			return "", false
		}
	}
	if n, err := strconv.ParseUint(id, 10, 32); err == nil {
		if n == 0 {
			return in.Backend, true
		}
		return in.Backend + "~" + strconv.FormatUint(n, 10), true
	}
	switch {
	case id == "" || id == in.Backend:
		return in.Backend, true
	case strings.HasPrefix(id, in.Backend+"~"):
		return id, true
	}
	return "", false
}

type callArgs struct {
	memberArgs
	Tool string          `json:"tool_name"`
	Args json.RawMessage `json:"tool_args"`
}

func callTool(ctx context.Context, s Sessions, caller string, in *callArgs) (relayed, error) {
	if in.Tool == "" {
		return nil, invalid("tool_name must name a tool; list_backend_tools lists them")
	}
	if len(in.Args) == 0 || string(in.Args) == "null" {
		in.Args = json.RawMessage("{}")
	}
	if in.Args[0] != '{' {
		return nil, invalid("tool_args must be an object")
	}
	id, member, err := in.find(ctx, s, caller)
	if err != nil {
		return nil, err
	}
	raw, err := s.Call(ctx, caller, id, member, in.Tool, in.Args)
	if err != nil {
		return nil, err
	}
	out, err := relay(raw, callResult, in.Backend)
	if err != nil {
		return nil, err
	}
	return saysError(out), nil
}

func listTools(ctx context.Context, s Sessions, caller string, in *memberArgs) (relayed, error) {
	id, member, err := in.find(ctx, s, caller)
	if err != nil {
		return nil, err
	}
	raw, err := s.Tools(ctx, caller, id, member)
	if err != nil {
		return nil, err
	}
	return relay(raw, listResult, in.Backend)
}

// What cleanup_session answers.
const (
	cleaned  = "cleaned"
	notThere = "custom_session_data_not_found_or_already_cleaned"
)

type cleanedUp struct {
	Status string `json:"status"`
	RK     string `json:"rk_session_id"`
}

// cleanup closes a session. Another owner's session is as if it did not exist.
func cleanup(ctx context.Context, s Sessions, caller string, in *sessionArgs) (cleanedUp, error) {
	id, err := in.must(ctx, s, caller)
	if err != nil {
		return cleanedUp{}, err
	}
	was, err := s.Show(ctx, caller, id)
	if err == nil && was.Closed.IsZero() {
		err = s.Close(ctx, caller, id)
	}
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Status == http.StatusNotFound:
		return cleanedUp{notThere, id}, nil
	case err != nil:
		return cleanedUp{}, err
	case !was.Closed.IsZero():
		return cleanedUp{notThere, id}, nil
	}
	return cleanedUp{cleaned, id}, nil
}

type pong struct {
	Reply   string `json:"reply"`
	Session string `json:"session_id"`
}

// ping names the session that other calls would mean, or else the one that it is
// made in.
func ping(ctx context.Context, s Sessions, caller string, in *sessionArgs) (pong, error) {
	id, err := in.which(ctx, s, caller)
	if err != nil {
		return pong{}, err
	}
	now, err := s.Show(ctx, caller, id)
	if err == nil && !now.Closed.IsZero() {
		err = ended(now)
	}
	return pong{"pong", now.ID}, err
}

// ended is the error of a session that was closed. One that ended by itself is no
// mistake of the caller.
func ended(s api.Session) error {
	e := &api.Error{Kind: api.KindInvalid, Message: "session " + s.ID + " was closed at " + s.Closed.UTC().Format(time.RFC3339)}
	if s.Reason != "" {
		e.Kind = api.KindLost
		e.Message += ": " + s.Reason
	}
	return e
}
