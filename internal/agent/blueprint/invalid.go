package blueprint

import "strings"

// Violation is one parameter that does not fit.
type Violation struct {
	Path       string `json:"path"` // a JSON pointer into the parameters; empty for all of them
	Message    string `json:"message"`
	SchemaPath string `json:"schema_path"`
}

// Codes of an InvalidError.
const (
	CodeParameters   = "parameter_validation_failed"
	CodeServerRef    = "mcp_ref_resolution_failed"
	CodeServerConfig = "missing_required_mcp_config"
	CodePlaceholder  = "placeholder_resolution_failed"
	CodeBlueprint    = "invalid_blueprint"
)

// An InvalidError is a run that can't be made of its blueprint and what was given for it.
type InvalidError struct {
	Code       string
	Message    string
	Violations []Violation
	cause      error
}

func (e *InvalidError) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for i, v := range e.Violations {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep)
		if v.Path != "" {
			b.WriteString(v.Path + ": ")
		}
		b.WriteString(v.Message)
	}
	return b.String()
}

func (e *InvalidError) Unwrap() error { return e.cause }
