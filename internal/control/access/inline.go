package access

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// Who defined a server that stands in no config. The empty word is anybody else.
const (
	MadeByFile     = "file"     // it stands in files that the operator keeps
	MadeByOperator = "operator" // a principal with that role sent it
)

// harmless are the keys of an inline server that anybody may define: they run nothing on
// this machine, and read and write no file of it.
var harmless = []string{
	"url", "headers", "transport", "builtin", "title", "scope", "fork", "tools", "policy", "startup",
	"timeout", "connect_timeout", "protocol", "client_capabilities", "enabled", "eager", "errors", "budget",
}

// harmlessBuiltins are the built-in servers among those, as they are without settings.
var harmlessBuiltins = []string{"memory", "sqlite", "time", "everything"}

// Defines refuses an inline server that its maker may not define: what runs a program
// here, or reads or writes what is this machine's, is for operators. It looks at the
// keys alone, before anything is done for their values. public says that the server must
// reach public addresses only.
func Defines(by, id string, entry []byte) (public bool, err error) {
	if by == MadeByFile || by == MadeByOperator {
		return false, nil
	}
	refuse := func(what string) error {
		return &api.Error{
			Kind: api.KindRefused, Server: id, Status: http.StatusForbidden,
			Message: fmt.Sprintf("%s.%s: %s needs the role operator; have an operator define it, in a file or by the API, or reference a server of the config", config.InlineKey, id, what),
		}
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(entry, &keys) != nil {
		return false, refuse("a server that is not written as a JSON object")
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(harmless, key) {
			return false, refuse(fmt.Sprintf("the key %.64q", key))
		}
	}
	var builtin string
	if raw, ok := keys["builtin"]; ok && (json.Unmarshal(raw, &builtin) != nil || !slices.Contains(harmlessBuiltins, builtin)) {
		return false, refuse("a built-in server other than " + strings.Join(harmlessBuiltins, ", "))
	}
	return true, nil
}
