package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// annotateOptions are the flags of tine session annotate.
type annotateOptions struct {
	call, text, data, file string
	reward                 float64
	hasReward              bool
}

func newSessionAnnotateCmd(c *cli) *cobra.Command {
	var o annotateOptions
	cmd := &cobra.Command{
		Use:   "annotate ID",
		Short: "Add a reward, text or data to the trajectory of a session",
		Long: `Adds an annotation to the trajectory of a session, open or closed, and prints its id.
It is of the session, or with --call of one of its calls. "tine session export" shows
annotations beside the calls. A session's own token can neither add nor read them.

--file reads the whole annotation as a JSON object, for what has no flag: token_ids, a
list of integers, and logprobs, a list of numbers or null of the same length. FILE - is
standard input. Flags take precedence.

` + sessionIDs,
		Example: `  tine session annotate 3f9a --reward 1
  tine session annotate 3f9a --call call_00000000002a --reward -0.5 --text "I will look."
  tine session annotate 3f9a --data '{"judge": "v3", "passed": ["a", "b"]}'
  tine session annotate 3f9a --file turn.json`,
		Args:              oneArg("the id of a session"),
		ValidArgsFunction: c.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.hasReward = cmd.Flags().Changed("reward")
			return c.annotate(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.call, "call", "", "the id of the call that it is of (default the session)")
	f.Float64Var(&o.reward, "reward", 0, "a number")
	f.StringVar(&o.text, "text", "", "what the model said in this turn")
	f.StringVar(&o.data, "data", "", "any JSON")
	f.StringVar(&o.file, "file", "", "read the annotation from this file, as JSON; - for standard input")
	for _, name := range []string{"call", "reward", "text", "data"} {
		c.completeFlag(cmd, name, cobra.NoFileCompletions)
	}
	return cmd
}

// maxAnnotationFile bounds what --file reads; the gateway takes less.
const maxAnnotationFile = 64 << 20

func (c *cli) annotate(ctx context.Context, ref string, o annotateOptions) error {
	in, err := c.annotation(o)
	if err != nil {
		return err
	}
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	made, err := once(ctx, c, func(key client.CreateOption) (*api.Annotation, error) { return g.Annotate(ctx, id, in, key) })
	if err != nil {
		return g.explain(mendSession(err))
	}
	return c.answer(made, made.ID)
}

// annotation is what the flags say.
func (c *cli) annotation(o annotateOptions) (in api.NewAnnotation, err error) {
	if o.file != "" {
		if in, err = c.annotationFile(o.file); err != nil {
			return in, err
		}
	}
	if o.call != "" {
		in.Call = o.call
	}
	if o.hasReward {
		if math.IsNaN(o.reward) || math.IsInf(o.reward, 0) {
			return in, usagef("--reward wants a finite number")
		}
		in.Reward = &o.reward
	}
	if o.text != "" {
		in.Text = o.text
	}
	if o.data != "" {
		if !json.Valid([]byte(o.data)) {
			return in, usagef("--data wants JSON; a text needs quotes of its own: --data '\"text\"'")
		}
		in.Data = json.RawMessage(o.data)
	}
	if in.Reward == nil && in.Text == "" && len(in.TokenIDs) == 0 && len(in.Logprobs) == 0 && len(in.Data) == 0 {
		return in, usagef("an annotation needs --reward, --text, --data or --file")
	}
	return in, nil
}

func (c *cli) annotationFile(path string) (in api.NewAnnotation, err error) {
	from := c.stdin
	switch {
	case path != "-":
		f, err := os.Open(path)
		if err != nil {
			return in, fmt.Errorf("read the annotation: %w", err)
		}
		defer f.Close()
		from = f
	case c.inTerminal:
		return in, usagef("an annotation is nothing to type at a terminal; name a file, or send one to standard input")
	}
	raw, err := io.ReadAll(io.LimitReader(from, maxAnnotationFile+1))
	switch {
	case err != nil:
		return in, fmt.Errorf("read the annotation: %w", err)
	case len(raw) > maxAnnotationFile:
		return in, usagef("%s is larger than %s", path, sizeText(maxAnnotationFile))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return in, usagef("%s is no annotation: %v; it is an object with call, reward, text, token_ids, logprobs and data", path, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return in, usagef("%s has more than one value in it", path)
	}
	return in, nil
}
