package rlm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/native/rlm/signature"
)

// Bounds of a sub-agent.
const (
	defaultIterations = 10
	mostIterations    = 100
	defaultQueries    = 30
	mostQueries       = 10_000
	// stepTimeout bounds the code of one step.
	stepTimeout = 5 * time.Minute
	// queriesAtOnce is how many prompts of a batch are asked at once.
	queriesAtOnce = 8
	// previewed is how many characters of an input the model sees.
	previewed = 200
	// heard is how many characters of an output go back to the model.
	heard = 10_000
)

// agentArgs are the arguments of sub_agent.
type agentArgs struct {
	Signature  string                     `json:"signature"`
	Inputs     map[string]json.RawMessage `json:"inputs"`
	Iterations *int                       `json:"max_iterations"`
	Queries    *int                       `json:"max_llm_calls"`
	Share      bool                       `json:"share"`
}

// A step is one of a sub-agent's: what the model said, the code in it, and what came of
// that.
type step struct {
	Reasoning string `json:"reasoning"`
	Code      string `json:"code,omitempty"`
	Output    string `json:"output,omitempty"`
}

// answered is what sub_agent returns.
type answered struct {
	Result     json.RawMessage `json:"result"`
	Trajectory []step          `json:"trajectory"`
	Usage      agentUsage      `json:"usage"`
	Cut        string          `json:"cut,omitempty"` // where the rest is
}

type agentUsage struct {
	Input  int64    `json:"input_tokens"`
	Output int64    `json:"output_tokens"`
	Calls  int64    `json:"llm_calls"`
	Cost   *float64 `json:"cost_usd,omitempty"` // not there where a price is not known
}

// usageOf counts what was read from a cache or written to one as input.
func usageOf(u model.Usage) agentUsage {
	out := agentUsage{Input: u.Tokens() - u.OutputTokens, Output: u.OutputTokens, Calls: u.Calls}
	if !u.CostUnknown {
		out.Cost = &u.Cost
	}
	return out
}

// An agent is one run of sub_agent.
type agent struct {
	s      *server
	sig    signature.Signature
	runs   *branch // where its code runs
	budget *model.Budget
	steps  []step
	tell   func(format string, args ...any) // progress

	mu      sync.Mutex
	queries int // that are left
	most    int
}

func (s *server) subAgent(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in agentArgs
	if err := arguments(req, &in); err != nil {
		return nil, err
	}
	sig, err := signature.Parse(in.Signature)
	if err != nil {
		return nil, invalid("%v", err)
	}
	iterations, err := within("max_iterations", in.Iterations, defaultIterations, mostIterations)
	if err != nil {
		return nil, err
	}
	queries, err := within("max_llm_calls", in.Queries, defaultQueries, mostQueries)
	if err != nil {
		return nil, err
	}
	values, bound, err := inputs(sig, in.Inputs)
	if err != nil {
		return nil, err
	}
	most := time.Duration(s.set.Budget.Time)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var out printed
	defer s.progress(ctx, req, &out)()
	a := &agent{
		s: s, sig: sig, steps: []step{}, queries: queries, most: queries,
		budget: s.models.budget.Within(model.Limits{Until: time.Now().Add(most)}),
		tell:   func(format string, args ...any) { out.add(fmt.Sprintf(format, args...), false) },
	}
	made := s.kernel.fork
	if in.Share {
		made = s.kernel.share
	}
	if a.runs, err = made(ctx, a.ask); err != nil {
		return nil, err
	}
	result, err := a.run(ctx, values, bound, iterations)
	a.end(context.WithoutCancel(ctx))
	var gone *died
	switch {
	case errors.Is(err, errEnded) || errors.Is(ctx.Err(), context.Canceled):
		return nil, err
	case ctx.Err() != nil:
		err = &api.Error{Kind: api.KindTimeout, Server: s.env.Server, Message: fmt.Sprintf("the sub-agent took longer than %s, which is settings.budget.time", most)}
	case errors.As(err, &gone) && in.Share:
		err = s.recover(ctx, gone.Error())
	case errors.As(err, &gone):
		err = &api.Error{Kind: api.KindTool, Server: s.env.Server, Message: "the sub-agent's copy of the kernel ended, and yours is as it was: " + gone.Error()}
	}
	report, wrong := a.report(context.WithoutCancel(ctx), result)
	if wrong != nil {
		return nil, wrong
	}
	if err != nil {
		res := failure(err)
		res.Content = append(res.Content, &mcp.TextContent{Text: string(report)})
		return res, nil
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(report)}}, StructuredContent: report}, nil
}

// end takes from the kernel what was there for the sub-agent alone.
func (a *agent) end(ctx context.Context) {
	var err error
	if a.runs.n == 0 { // else it ends with its branch
		err = a.tells(ctx, map[string]any{"op": "agent", "outputs": nil}, nil)
		a.s.changed()
	}
	if err = errors.Join(err, a.runs.close(ctx)); err != nil && !errors.Is(err, errEnded) && !errors.As(err, new(*died)) {
		a.s.env.Log.Warn("a sub-agent's copy of a kernel did not end", "server", a.s.env.Server, "err", err)
	}
}

// report is what the caller gets. Where that is too long, what was cut is in variables of
// the kernel.
func (a *agent) report(ctx context.Context, result json.RawMessage) (json.RawMessage, error) {
	whole := answered{Result: result, Trajectory: a.steps, Usage: usageOf(a.budget.Usage())}
	text, err := json.Marshal(whole)
	most := a.s.set.Output
	if err != nil || weight(string(text)) <= most {
		return text, err
	}
	values := map[string]any{"_trajectory": a.steps, "_result": result}
	if err := a.s.ask1(ctx, map[string]any{"op": "set", "names": values}, nil); err != nil {
		return nil, err
	}
	whole.Cut = "long texts are cut; the variables _result and _trajectory have all of it"
	if most /= 2; weight(string(result)) > most {
		// A part of JSON is none, so it is shown as text.
		if whole.Result, err = json.Marshal(cut(string(result), most, "the variable _result has all")); err != nil {
			return nil, err
		}
	}
	each := most / (3 * max(1, len(a.steps)))
	whole.Trajectory = nil
	for _, s := range a.steps {
		whole.Trajectory = append(whole.Trajectory, step{cut(s.Reasoning, each, ""), cut(s.Code, each, ""), cut(s.Output, each, "")})
	}
	return json.Marshal(whole)
}

// within is a number of the arguments, or its default.
func within(name string, given *int, usual, most int) (int, error) {
	switch {
	case given == nil:
		return usual, nil
	case *given < 1 || *given > most:
		return 0, invalid("%s must be 1 to %d, not %d", name, most, *given)
	}
	return *given, nil
}

// inputs tells values from the names of variables that are there already.
func inputs(sig signature.Signature, given map[string]json.RawMessage) (values map[string]json.RawMessage, bound map[string]string, err error) {
	values, bound = map[string]json.RawMessage{}, map[string]string{}
	for _, f := range sig.Inputs {
		raw, ok := given[f.Name]
		if !ok {
			return nil, nil, invalid("inputs lacks %s, which the signature names", f.Name)
		}
		var ref map[string]json.RawMessage
		if json.Unmarshal(raw, &ref) == nil && len(ref) == 1 && ref["$var"] != nil {
			var name string
			if json.Unmarshal(ref["$var"], &name) != nil {
				return nil, nil, invalid(`inputs.%s: "$var" wants the name of a variable`, f.Name)
			}
			bound[f.Name] = name
			continue
		}
		if err := f.Input(raw); err != nil {
			return nil, nil, invalid("inputs: %v", err)
		}
		values[f.Name] = raw
	}
	for name := range given {
		if values[name] == nil && bound[name] == "" {
			return nil, nil, invalid("inputs has %s, which the signature does not name", name)
		}
	}
	return values, bound, nil
}

// run is the loop: the model writes code, the kernel runs it.
func (a *agent) run(ctx context.Context, values map[string]json.RawMessage, bound map[string]string, iterations int) (json.RawMessage, error) {
	about, err := a.begin(ctx, values, bound)
	if err != nil {
		return nil, err
	}
	talk := []model.Message{{Role: "user", Text: about}}
	for n := 1; n <= iterations; n++ {
		reply, err := a.s.models.ask(ctx, model.Request{System: a.system(iterations), Messages: talk, Budget: a.budget})
		if err != nil {
			return nil, err
		}
		if reply.Stop == model.StopRefusal {
			return nil, &api.Error{Kind: api.KindTool, Server: a.s.env.Server, Message: "the language model declined to answer: " + cut(reply.Message.Text, previewed, "")}
		}
		now := step{Reasoning: reply.Message.Text, Code: codeOf(reply.Message.Text)}
		a.tell("step %d of at most %d\n", n, iterations)
		var result json.RawMessage
		if now.Code == "" {
			now.Output = "There is no code in this. Write one block that begins with ```python; call SUBMIT in it when you have the outputs."
		} else if result, now.Output, err = a.step(ctx, now.Code); err != nil {
			a.steps = append(a.steps, now)
			return nil, err
		}
		a.steps = append(a.steps, now)
		if result != nil {
			return result, nil
		}
		talk = append(talk, model.Message{Role: "assistant", Text: reply.Message.Text}, model.Message{Role: "user", Text: fmt.Sprintf("%s\n\n(Step %d of %d.)", now.Output, n, iterations)})
	}
	return a.extract(ctx, talk)
}

// begin puts the inputs into variables, and returns what the model is told of them.
func (a *agent) begin(ctx context.Context, values map[string]json.RawMessage, bound map[string]string) (string, error) {
	var names, outputs []string
	for _, f := range a.sig.Inputs {
		names = append(names, f.Name)
	}
	for _, f := range a.sig.Outputs {
		outputs = append(outputs, f.Name)
	}
	var missing struct {
		Missing []string `json:"missing"`
	}
	if err := a.tells(ctx, map[string]any{"op": "bind", "names": bound}, &missing); err != nil {
		return "", err
	}
	if len(missing.Missing) > 0 {
		return "", invalid("there is no variable %s; rlm_vars lists all", strings.Join(missing.Missing, ", "))
	}
	if err := a.tells(ctx, map[string]any{"op": "set", "names": values}, nil); err != nil {
		return "", err
	}
	if err := a.tells(ctx, map[string]any{"op": "agent", "outputs": outputs}, nil); err != nil {
		return "", err
	}
	var known struct {
		Vars []struct {
			Name, Type, Preview string
			Length              *int
		} `json:"vars"`
	}
	if err := a.tells(ctx, map[string]any{"op": "describe", "names": names, "most": previewed}, &known); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Task: %s\n\nVariables in the kernel:\n", a.sig)
	for i, v := range known.Vars {
		if err := a.sig.Inputs[i].Holds(v.Type); err != nil {
			return "", invalid("inputs: %v", err)
		}
		length := ""
		if v.Length != nil {
			length = fmt.Sprintf(", length %d", *v.Length)
		}
		fmt.Fprintf(&b, "- %s (%s%s), which begins: %s\n", v.Name, v.Type, length, strings.ReplaceAll(v.Preview, "\n", "\n  "))
	}
	return b.String(), nil
}

func (a *agent) system(iterations int) string {
	text := fmt.Sprintf(`You work on a task by writing Python, which runs in a kernel that keeps its variables. The inputs are variables there; they may be far too long to print, so look at parts of them.

In each reply think briefly, then write one block of code that begins with %[1]spython. What it prints, and the value of its last expression, come back to you, cut to %[2]d characters. You have %[3]d replies.

In the code you can call:
- llm_query(prompt): asks a language model, which sees the prompt alone and no variables. Use it for what needs understanding, on parts of up to some 100,000 characters.
- llm_query_batch(prompts): asks several at once and returns a list of answers.
- SUBMIT(%[4]s): ends the task with the outputs. Look at them before you submit.
There is no network. Of llm_query there are %[5]d calls in all.`, "```", heard, iterations, outputsOf(a.sig), a.most)
	if a.sig.Strategy != "" {
		text += "\n\n" + a.sig.Strategy
	}
	return text
}

func outputsOf(sig signature.Signature) string {
	var all []string
	for _, f := range sig.Outputs {
		all = append(all, f.Name+"=<"+f.Type.String()+">")
	}
	return strings.Join(all, ", ")
}

// step runs the code of one, and returns its result where it submits one that fits.
func (a *agent) step(ctx context.Context, code string) (result json.RawMessage, output string, err error) {
	var out printed
	done, restarted, err := a.runs.do(ctx, stepTimeout, map[string]any{"op": "exec", "code": code}, out.add)
	switch {
	case restarted:
		return nil, "", &died{hung: stepTimeout}
	case done == nil:
		return nil, "", err
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	}
	var r struct {
		ran
		Submitted *string `json:"submitted"`
	}
	if err := json.Unmarshal(done, &r); err != nil {
		return nil, "", err
	}
	output = shown(&out, r.ran, heard)
	switch {
	case r.Interrupted:
		output = joined(output, fmt.Sprintf("The code ran longer than %s and was interrupted; variables are kept.", stepTimeout))
	case r.Error != nil:
		output = joined(output, *r.Error)
	case r.Submitted != nil:
		if result, err = a.sig.Check([]byte(*r.Submitted)); err == nil {
			return result, output, nil
		}
		output = joined(output, "SUBMIT was refused: "+err.Error())
	case output == "":
		output = "(no output)"
	}
	return nil, output, nil
}

// extract asks for the outputs, when there are no steps left.
func (a *agent) extract(ctx context.Context, talk []model.Message) (json.RawMessage, error) {
	last := &talk[len(talk)-1]
	last.Text += fmt.Sprintf("\n\nThere are no replies left for code. Give the outputs now, as well as you know them: one JSON object with %s, and nothing else.", outputsOf(a.sig))
	reply, err := a.s.models.ask(ctx, model.Request{System: a.system(0), Messages: talk, Budget: a.budget})
	if err != nil {
		return nil, err
	}
	a.steps = append(a.steps, step{Reasoning: reply.Message.Text})
	text := reply.Message.Text
	if code := codeOf(text); strings.Contains(code, "SUBMIT(") { // all the same
		if result, _, err := a.step(ctx, code); result != nil || err != nil {
			return result, err
		}
	}
	if begin, end := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}'); begin >= 0 && end > begin {
		text = text[begin : end+1]
	}
	result, err := a.sig.Check([]byte(text))
	if err != nil {
		return nil, &api.Error{Kind: api.KindTool, Server: a.s.env.Server, Message: fmt.Sprintf("the sub-agent came to no result within its iterations, and its last answer does not fit: %v", err)}
	}
	return result, nil
}

// tells has the kernel do something that is no code of the model.
func (a *agent) tells(ctx context.Context, ask map[string]any, into any) error {
	done, _, err := a.runs.do(ctx, askTimeout, ask, nil)
	if err != nil {
		return err
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(done, into)
}

// ask answers what the sub-agent's code asks: so often, and no more.
func (a *agent) ask(ctx context.Context, e event) (any, error) {
	n := max(1, len(e.Prompts))
	a.mu.Lock()
	if n > a.queries {
		left := a.queries
		a.mu.Unlock()
		return nil, fmt.Errorf("%d more queries were asked for, and of max_llm_calls (%d) there are %d left", n, a.most, left)
	}
	a.queries -= n
	a.mu.Unlock()
	return a.s.models.answer(ctx, e, a.budget)
}

// fenced is a block of code in what a model says.
var fenced = regexp.MustCompile("(?s)```(?:python|py|repl)?[ \t]*\r?\n(.*?)```")

// codeOf is the code in a reply; several blocks are one.
func codeOf(text string) string {
	var blocks []string
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, strings.TrimRight(m[1], " \t\r\n"))
	}
	return strings.Join(blocks, "\n")
}
