package telemetry

import "encoding/json"

// Values masks the values that the config says are secret and nothing else, in JSON
// that is a user's data: a text that only looks like a secret may be what the user
// asked for. The result is valid JSON when b is. If there is nothing to mask it
// returns b itself.
func (r *Redactor) Values(b []byte) []byte {
	if r == nil || len(b) == 0 {
		return b
	}
	s := string(b)
	cuts := r.known.Load().find(s, nil)
	if len(cuts) == 0 {
		return b
	}
	out := applyCuts(s, cuts)
	if json.Valid(b) && !json.Valid(out) {
		return r.JSON(b) // a secret that stood there as a number, say
	}
	return out
}
