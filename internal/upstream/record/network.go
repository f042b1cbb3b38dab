package record

import (
	"encoding/json"
	"net"
	"strconv"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store/journal"
)

// traffic is what the journal has of a connection besides its outcome, as
// arguments. The address is in it only if the journal mode is full.
type traffic struct {
	Sent     int64  `json:"sent"`
	Received int64  `json:"received"`
	Protocol string `json:"protocol,omitempty"`
	Address  string `json:"address,omitempty"`
}

// Network records a connection that the server made to the outside, under the name
// that its session has for the server and for the session's owner. It is not a call
// and does not count as one.
func (s *Server) Network(member, owner string, n driver.Network) {
	mode := *s.mode.Load()
	if s.o.Journal == nil || mode == config.JournalOff {
		return
	}
	e := journal.Entry{
		At: n.Began, Principal: owner, Session: n.Session, Server: member, Method: driver.MethodNetwork,
		Name: clip(net.JoinHostPort(n.Host, strconv.Itoa(n.Port))), Duration: n.Took, Outcome: networkOutcome(n), Mode: mode,
	}
	t := traffic{Sent: n.Sent, Received: n.Received, Protocol: n.Protocol}
	if mode == config.JournalFull {
		t.Address = n.Address
		e.Error = clip(s.o.Redact.Text(n.Reason[:min(len(n.Reason), maxMessage)]))
	}
	err := error(nil)
	if e.Params, err = json.Marshal(map[string]traffic{"arguments": t}); err == nil {
		err = s.o.Journal.Append(&e)
	}
	if err != nil {
		s.o.Metrics.JournalError()
	}
	s.o.Trouble.note(s.o.Log, err)
}

// networkOutcome is the outcome of a connection, and says whose fault it is.
func networkOutcome(n driver.Network) string {
	switch {
	case !n.Allowed:
		return string(api.KindRefused)
	case n.Reason != "":
		return string(api.KindInfrastructure)
	}
	return api.OutcomeOK
}
