package body

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/model/spec"
	"github.com/tine-mcp/tine/internal/native/settings"
)

// Settings of the server.
type Settings struct {
	// AllowRead are files and folders of the host that load may read.
	AllowRead []string `json:"allow_read"`
	// Names is how tools are named in lists: [Underscores], as rlm_exec, or [Dots], as
	// rlm.exec. Both can be called.
	Names string `json:"names"`
	// Output is how many characters of a result are given back.
	Output int `json:"output"`
	// Reseed is whether the random generators of a copy begin anew.
	Reseed bool `json:"reseed"`
	// Save is how long after a change the variables are saved.
	Save settings.Duration `json:"save"`
	// Python is the interpreter, and Packages are from PyPI. The config has read both.
	Python   string   `json:"python"`
	Packages []string `json:"packages"`

	// Model writes the code of sub-agents, and SubModel answers llm_query; without a
	// name it is the same.
	Model    string `json:"model"`
	SubModel string `json:"sub_model"`
	// BaseURL is that of an endpoint in the format of OpenAI or Anthropic, and KeyEnv
	// the variable of the gateway's environment that has the key.
	BaseURL string `json:"base_url"`
	KeyEnv  string `json:"key_env"`
	// Budget is what the models of one session may use in all, and Prices what they
	// cost, by the million tokens.
	Budget Budget          `json:"budget"`
	Prices json.RawMessage `json:"prices"`
}

// A Budget bounds what language models are used for in one session. Zero is no bound.
type Budget struct {
	Calls  int64   `json:"calls"`
	Tokens int64   `json:"tokens"`
	Cost   float64 `json:"cost"` // in US dollars
	// Time is that of one sub-agent.
	Time settings.Duration `json:"time"`
}

// How tools are named in lists.
const (
	Underscores = "underscores"
	Dots        = "dots"
)

// Bounds of Settings.Output. The default stays below 25,000 tokens, which is what
// clients take.
const (
	defaultOutput = 40_000
	leastOutput   = 1_000
	mostOutput    = 1_000_000
)

// Bounds of Settings.Save and of the time of a sub-agent.
const (
	defaultSave = 5 * time.Minute
	leastSave   = time.Second
	mostSave    = 24 * time.Hour

	defaultTime = time.Hour
	leastTime   = time.Second
	mostTime    = 24 * time.Hour
)

// defaultModel is used where the settings name none.
const defaultModel = "anthropic/claude-sonnet-5-5"

// ReadSettings reads the settings of an entry.
func ReadSettings(from map[string]any) (Settings, error) {
	s := Settings{
		Names: Underscores, Output: defaultOutput, Reseed: true, Save: settings.Duration(defaultSave),
		Model: defaultModel, Budget: Budget{Time: settings.Duration(defaultTime)},
	}
	if err := settings.Decode(from, &s); err != nil {
		return s, err
	}
	switch save, span := time.Duration(s.Save), time.Duration(s.Budget.Time); {
	case s.Names != Underscores && s.Names != Dots:
		return s, fmt.Errorf("settings.names must be %s or %s, not %q", Underscores, Dots, s.Names)
	case save < leastSave || save > mostSave:
		return s, fmt.Errorf("settings.save must be from %s to %s", leastSave, mostSave)
	case s.Output < leastOutput || s.Output > mostOutput:
		return s, fmt.Errorf("settings.output must be %d to %d characters, not %d", leastOutput, mostOutput, s.Output)
	case s.Budget.Calls < 0 || s.Budget.Tokens < 0 || s.Budget.Cost < 0:
		return s, errors.New("settings.budget must not have negative numbers")
	case span < leastTime || span > mostTime:
		return s, fmt.Errorf("settings.budget.time must be from %s to %s", leastTime, mostTime)
	}
	for _, m := range s.models() {
		if _, err := spec.At(m.name, s.BaseURL); err != nil {
			return s, fmt.Errorf("settings.%s: %w", m.key, err)
		}
	}
	if _, err := spec.ReadPrices(s.Prices); err != nil {
		return s, fmt.Errorf("settings.prices: %w", err)
	}
	for _, path := range s.AllowRead {
		if !filepath.IsAbs(path) {
			return s, fmt.Errorf("settings.allow_read must have absolute paths, not %q", path)
		}
	}
	for _, name := range s.Packages {
		if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "\n\x00") {
			return s, fmt.Errorf("settings.packages must have names of packages, such as numpy or pandas==2.3.0, not %q", name)
		}
	}
	return s, nil
}

// models are the names of language models with the keys that have them.
func (s *Settings) models() []struct{ key, name string } {
	all := []struct{ key, name string }{{"model", s.Model}}
	if s.SubModel != "" {
		all = append(all, struct{ key, name string }{"sub_model", s.SubModel})
	}
	return all
}

// variable is the name of one of the environment.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Check says what is wrong with the settings of a config. Sessions that were opened with
// such settings by an earlier version go on.
func Check(from map[string]any) error {
	s, err := ReadSettings(from)
	if err != nil {
		return err
	}
	if s.KeyEnv != "" && !variable.MatchString(s.KeyEnv) { // which may be a key
		return errors.New("settings.key_env must be the name of a variable of the environment, such as ANTHROPIC_API_KEY")
	}
	budget, _ := from["budget"].(map[string]any)
	for key, is := range map[string]bool{"calls": s.Budget.Calls > 0, "tokens": s.Budget.Tokens > 0, "cost": s.Budget.Cost > 0} {
		if _, given := budget[key]; given && !is {
			return fmt.Errorf("settings.budget.%s must be more than 0; leave it out for no bound", key)
		}
	}
	return s.checkPrices()
}

// checkPrices wants a price for each model where money is bounded: no call could be made
// without one.
func (s *Settings) checkPrices() error {
	if s.Budget.Cost == 0 {
		return nil
	}
	given, err := spec.ReadPrices(s.Prices)
	if err != nil {
		return err
	}
	prices := spec.DefaultPrices().With(given)
	for _, m := range s.models() {
		provider, short, _, err := spec.Read(m.name, s.BaseURL)
		if err != nil {
			return err
		}
		if _, known := prices.Of(provider, short); !known && provider != spec.Claude { // which tells what it cost
			return fmt.Errorf("settings.prices must have %s, as budget.cost bounds what it may cost", m.name)
		}
	}
	return nil
}
