package config

import (
	"bytes"
	"encoding/json"
)

// detailsValue is the template of a remote server as plain values.
func (s *Server) detailsValue() any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(s.Details))
	dec.UseNumber()
	if len(s.Details) == 0 || dec.Decode(&v) != nil {
		return nil
	}
	return plainNumbers(v)
}
