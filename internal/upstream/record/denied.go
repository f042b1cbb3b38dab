package record

import (
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A request may be turned away before it reaches a server's policies: a rule keeps
// it from its principal, there is no such server, or the principal makes too many.
// Such requests are in the journal whatever the journal mode of a server is. Of a
// server that is hidden and one that is not there the journal must not differ, since
// whoever asked sees in the ids of its other calls whether something was written.

// ModeDenied is the mode of a journal's entry of a call that was not made, because
// what was called is not there for its principal. Its error says why; nothing of the
// call is kept but that.
const ModeDenied = "denied"

// Denied counts a request to the server that its principal may not make.
func (s *Server) Denied() { s.metrics.Refused(telemetry.RefusedAccess) }

// Denied writes down a request that was turned away, and why. The server is what the
// request calls it. The mistake is the caller's, as its answer says: it was shown no
// such thing.
func (o *Options) Denied(server string, req *upstream.Request, why string) {
	o.turnedAway(server, req, api.KindInvalid, why, ModeDenied)
}

// Limited writes down a request for what is not there for its principal, which makes
// too many.
func (o *Options) Limited(server string, req *upstream.Request, why string) {
	o.turnedAway(server, req, api.KindRefused, why, config.JournalMeta)
}

// NotMade writes down a request to a server that is not known, which was not made.
func (o *Options) NotMade(server string, req *upstream.Request, why *api.Error) {
	if journalled(req.Method) {
		o.turnedAway(server, req, why.Kind, o.Redact.Text(why.Message), config.JournalMeta)
	}
}

func (o *Options) turnedAway(server string, req *upstream.Request, kind api.Kind, why, mode string) {
	if o.Journal == nil {
		return
	}
	err := o.Journal.Append(&journal.Entry{
		At: time.Now(), Principal: req.Who, Session: req.Session, Server: clip(server), Method: clip(req.Method),
		Name: clip(req.Name), Outcome: string(kind), Error: clip(why), Mode: mode,
	})
	if err != nil {
		o.Metrics.JournalError()
	}
	o.Trouble.note(o.Log, err)
}
