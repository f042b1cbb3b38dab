package credential

import (
	"context"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// missing is why no authorization server was found that will do.
type missing struct {
	set    *Settings
	wrong  []string // what is there and will not do
	absent []string // places where nothing is
	advice []string // instead of naming the endpoints
	again  bool     // another try may help
}

func (m *missing) add(text string) {
	if !slices.Contains(m.wrong, text) {
		m.wrong = append(m.wrong, text)
	}
}

// advise adds what is wrong, and what can be done about it.
func (m *missing) advise(text, advice string) {
	m.add(text)
	if !slices.Contains(m.advice, advice) {
		m.advice = append(m.advice, advice)
	}
}

// fails adds a place that did not answer.
func (m *missing) fails(place string, err error) {
	text, again := unanswered(err)
	m.add(shown(place) + " " + text)
	m.again = m.again || again
	if advice := m.set.mend(err); advice != "" {
		m.advise(m.wrong[len(m.wrong)-1], advice)
	}
}

// nothing adds a place where nothing is.
func (m *missing) nothing(place string) {
	if place = shown(place); !slices.Contains(m.absent, place) {
		m.absent = append(m.absent, place)
	}
}

// error tells the cause first, then where nothing was, then what to do: nothing where
// another try may help.
func (m *missing) error(ctx context.Context) error {
	set := m.set
	if ctx.Err() != nil {
		return problem(api.KindInfrastructure, set.Server, true, "the search for its authorization server took too long")
	}
	parts := slices.Clone(m.wrong)
	if len(m.absent) > 0 {
		absent := "there is no metadata at " + strings.Join(m.absent, ", ")
		if len(parts) == 0 {
			absent = "no authorization server was found: " + absent
		}
		parts = append(parts, absent)
	}
	parts = []string{cut(oneLine(strings.Join(parts, "; ")), 4*maxQuoted)}
	switch {
	case len(m.advice) > 0:
		parts = append(parts, m.advice...)
	case !m.again:
		parts = append(parts, "set "+set.endpoints())
	}
	return problem(api.KindInfrastructure, set.Server, m.again && len(m.advice) == 0, "%s", strings.Join(parts, "; "))
}

// endpoints names the keys that say where tokens come from, with those that they need.
func (s *Settings) endpoints() string {
	keys := []string{"token_url"}
	if s.Type == config.AuthLogin {
		keys = []string{"auth_url", "token_url"}
		if s.ClientID == "" {
			keys = append(keys, "client_id")
		}
	}
	if s.PrivateKey != "" {
		keys = append(keys, "issuer")
	}
	last := len(keys) - 1
	text := "servers." + s.Server + ".auth." + strings.Join(keys[:max(last, 1)], ", ")
	if last > 0 {
		text += " and " + keys[last]
	}
	if s.Type == config.AuthLogin && s.ClientMetadataURL != "" {
		text += " in place of client_metadata_url"
	}
	return text
}
