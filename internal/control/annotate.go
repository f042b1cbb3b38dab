package control

import (
	"context"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
)

const (
	// maxAnnotation bounds the text and the data of an annotation, in bytes each.
	maxAnnotation = 8 << 20
	// maxTokens is how many token ids and logprobs an annotation may have.
	maxTokens = 1 << 20
)

// Annotate notes something of a session, open or closed, or of one of its calls. The
// route refuses a session's own token: an agent does not score itself.
func (c *Sessions) Annotate(ctx context.Context, r Request, id string, in api.NewAnnotation) (api.Annotation, error) {
	if err := checkAnnotation(&in); err != nil {
		return api.Annotation{}, err
	}
	return once(ctx, c.core, r, in, func(ctx context.Context, mark string) (out api.Annotation, undo func(context.Context), err error) {
		_, was, err := c.Seen(ctx, r.Who, id)
		if err != nil {
			return out, nil, err
		}
		if !access.Uses(r.Who, access.Thing{Owner: was.Owner, Session: id}) {
			return out, nil, access.Need(r.Who, api.RoleOperator)
		}
		out, err = c.reg.Annotate(ctx, r.Who.Name, id, in, mark)
		return out, nil, err
	})
}

// checkAnnotation refuses an annotation that says nothing, and what it may not say.
func checkAnnotation(in *api.NewAnnotation) error {
	if string(in.Data) == "null" {
		in.Data = nil
	}
	switch {
	case in.Reward == nil && in.Text == "" && len(in.TokenIDs) == 0 && len(in.Logprobs) == 0 && len(in.Data) == 0:
		return Invalid("an annotation needs a reward, text, token_ids, logprobs or data")
	case len(in.Text) > maxAnnotation:
		return Invalid("text has %d bytes and may have %d", len(in.Text), maxAnnotation)
	case len(in.Data) > maxAnnotation:
		return Invalid("data has %d bytes and may have %d", len(in.Data), maxAnnotation)
	case len(in.TokenIDs) > maxTokens:
		return Invalid("there are %d token_ids and may be %d", len(in.TokenIDs), maxTokens)
	case len(in.Logprobs) > maxTokens:
		return Invalid("there are %d logprobs and may be %d", len(in.Logprobs), maxTokens)
	case len(in.TokenIDs) > 0 && len(in.Logprobs) > 0 && len(in.TokenIDs) != len(in.Logprobs):
		return Invalid("there are %d token_ids and %d logprobs; give one logprob, or null, for each token id", len(in.TokenIDs), len(in.Logprobs))
	}
	for i, id := range in.TokenIDs {
		if id < 0 {
			return Invalid("token_ids[%d] is %d and must be at least 0", i, id)
		}
	}
	return nil
}
