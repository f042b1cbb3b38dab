package everything

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addResearchTool adds the tool that the reference server runs as a task. Here
// it runs within the call and tells its stages as progress.
func (s *server) addResearchTool() {
	add(s, tool{
		name: "simulate-research-query", title: "Simulated research",
		description: "Pretends to research a topic in several stages, with progress. An ambiguous topic makes it ask which meaning is wanted, if the client supports elicitation.",
		properties: map[string]any{
			"topic":     prop("string", "What to research"),
			"ambiguous": prop("boolean", "Pretend that the topic has several meanings", "default", false),
		},
		required: []string{"topic"},
	}, s.research)
}

type researchArgs struct {
	Topic     string `json:"topic"`
	Ambiguous bool   `json:"ambiguous"`
}

func (s *server) research(ctx context.Context, req *mcp.CallToolRequest, in researchArgs) (*mcp.CallToolResult, error) {
	stages := []string{"Gathering sources", "Analyzing content", "Synthesizing findings", "Generating report"}
	const unclear = 2 // the stage that needs to know which meaning is wanted

	// In the newer era the answer comes with a second call, which goes on where
	// the first one stopped.
	first := 0
	if len(req.Params.InputResponses) > 0 {
		first = unclear
	}
	meaning := ""
	for i := first; i < len(stages); i++ {
		if err := progress(ctx, req, float64(i), float64(len(stages)), stages[i]); err != nil {
			return nil, err
		}
		caps := req.ClientCapabilities()
		if i == unclear && in.Ambiguous && caps != nil && caps.Elicitation != nil {
			answer, again, err := elicit(ctx, req, &mcp.ElicitParams{
				Mode:            "form",
				Message:         fmt.Sprintf("%q may mean several things. Which one is meant?", in.Topic),
				RequestedSchema: meaningSchema(in.Topic),
			})
			if again != nil {
				return again, nil
			}
			meaning = chosenMeaning(answer, err)
		}
		if err := wait(ctx, s.stage); err != nil {
			return nil, err
		}
	}
	if err := progress(ctx, req, float64(len(stages)), float64(len(stages)), "Done"); err != nil {
		return nil, err
	}
	return texts(report(in.Topic, meaning, stages)), nil
}

func chosenMeaning(r *mcp.ElicitResult, err error) string {
	switch {
	case err != nil:
		return "technical, as the user could not be asked"
	case r.Action == "decline":
		return "the default, as the user declined to choose"
	case r.Action != "accept":
		return "the default, as the user cancelled"
	}
	if m, ok := r.Content["interpretation"].(string); ok && m != "" {
		return m
	}
	return "the default, as the user chose none"
}

func meaningSchema(topic string) map[string]any {
	type choice struct {
		Const string `json:"const"`
		Title string `json:"title"`
	}
	choices := []choice{{"technical", "The technical side"}, {"historical", "Its history"}, {"current", "What is new about it"}}
	if strings.Contains(strings.ToLower(topic), "python") {
		choices = []choice{{"programming", "The programming language"}, {"snake", "The snake"}, {"comedy", "The comedians"}}
	}
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"interpretation": map[string]any{
				"type": "string", "title": "Meaning", "description": "Which meaning of the topic", "oneOf": choices,
			},
		},
		"required": []string{"interpretation"},
	}
}

func report(topic, meaning string, stages []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Research Report: %s\n\n", topic)
	if meaning != "" {
		fmt.Fprintf(&b, "Meaning: %s\n\n", meaning)
	}
	for i, s := range stages {
		fmt.Fprintf(&b, "%d. %s: done\n", i+1, s)
	}
	b.WriteString("\nNothing was really looked up: this report only shows how a long call reports its stages and asks its caller a question halfway.\n")
	return b.String()
}
