package session

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// mostNamed bounds how many errors one message tells; the causes are all there.
const mostNamed = 20

// joined makes one error of those of several members: the one there is, or one
// that names each.
func joined(errs []error) error {
	var all []*api.Error
	var first error
	for _, err := range errs {
		if err == nil {
			continue
		}
		var ours *api.Error
		if !errors.As(err, &ours) {
			ours = &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
		}
		if first == nil {
			first = err
		}
		all = append(all, ours)
	}
	if len(all) <= 1 {
		return first
	}
	// A retry is advised only where it can mend all of them.
	whole := &api.Error{Kind: all[0].Kind, Retryable: true, Causes: all}
	texts := make([]string, 0, len(all))
	for _, e := range all {
		if e.Kind != whole.Kind {
			whole.Kind = api.KindInfrastructure
		}
		whole.Retryable = whole.Retryable && e.Retryable
		whole.RetryAfter = max(whole.RetryAfter, e.RetryAfter)
		if len(texts) < mostNamed {
			texts = append(texts, e.Message)
		}
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	whole.Message = fmt.Sprintf("%d servers failed: %s", len(all), strings.Join(texts, "; "))
	return whole
}
