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

func (s *Server) shownStartup() *Node {
	n := MapNode()
	n.setText("tool", s.Startup.Tool, "startup.tool", s.hidden)
	if len(s.Startup.Arguments) > 0 {
		n.Set("arguments", shownAny("startup.arguments", s.Startup.Arguments, s.hidden))
	}
	return n
}
