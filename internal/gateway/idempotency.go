package gateway

import (
	"net/http"

	"github.com/tine-mcp/tine/internal/control"
)

// maxKey bounds an idempotency key.
const maxKey = 256

// readKey takes the key out of a request; empty without one.
func readKey(r *http.Request) (string, error) {
	values := r.Header.Values(control.HeaderKey)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	valid := len(values) == 1 && key != "" && len(key) <= maxKey
	for i := range len(key) {
		valid = valid && key[i] > ' ' && key[i] <= '~'
	}
	if !valid {
		return "", invalid("%s must be 1 to %d visible ASCII characters, once", control.HeaderKey, maxKey)
	}
	return key, nil
}
