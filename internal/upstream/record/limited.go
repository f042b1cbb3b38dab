package record

import (
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
)

// Limited records a request that was refused before it reached the policies,
// because its principal makes too many. Its arguments are not kept.
func (s *Server) Limited(req *upstream.Request, why *api.Error) {
	s.metrics.Refused(telemetry.RefusedRate)
	if s.o.Journal == nil || *s.mode.Load() == config.JournalOff {
		return
	}
	err := s.o.Journal.Append(&journal.Entry{
		At: time.Now(), Principal: req.Who, Session: req.Session, Run: req.Run, Server: s.id, Method: req.Method,
		Name: clip(req.Name), Outcome: string(why.Kind), Error: why.Message, Mode: config.JournalMeta,
	})
	if err != nil {
		s.o.Metrics.JournalError()
	}
	s.o.Trouble.note(s.o.Log, err)
}
