package upstream

import "sync"

// maxAbandoned bounds the calls that are remembered after their callers gave up.
const maxAbandoned = 1024

// callers tracks whose calls a server is handling on a connection. A message that a
// server sends outside of an exchange names no call, and several clients may use
// the connection: those of a session, or of a session and its forks.
//
// A server asks and logs for calls that it has not answered. So a message is
// certain to be for a client if all unanswered calls are that client's. A call that
// was cancelled or timed out counts until the server answers it, as many servers
// continue to work on it.
type callers struct {
	mu   sync.Mutex
	open map[string]*call // by id, until the caller has its answer
	// abandoned has the client's key of each call whose caller gave up, by id.
	abandoned map[string]string
	// untold is set when there were too many abandoned calls to remember.
	untold  bool
	first   string // the client that called first; empty for none
	several bool   // another one has called since
}

// An Origin is the client for which a server sent a message outside of an exchange.
// The zero Origin is that of a server that no client has called.
type Origin struct {
	// Client is the key of the only client that it can be for; empty for none in
	// particular.
	Client string
	// Called is set where a pending call of that client caused it.
	Called bool
	// Unknown is set where the client can't be determined.
	Unknown bool
}

// begin notes a call. Requests of the gateway's own have no client.
func (s *callers) begin(k *call) {
	key := k.req.Client.Key
	if k.own = key == ""; k.own {
		return
	}
	k.over = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[string]*call)
	}
	s.open[k.id] = k
	switch s.first {
	case key:
	case "":
		s.first = key
	default:
		s.several = true
	}
}

// end notes that the caller of a call has stopped waiting.
func (s *callers) end(k *call) {
	if k.own {
		return
	}
	close(k.over)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, k.id)
	if !k.sent || k.answered {
		return
	}
	if len(s.abandoned) >= maxAbandoned {
		s.untold = true
		return
	}
	if s.abandoned == nil {
		s.abandoned = make(map[string]string)
	}
	s.abandoned[k.id] = k.req.Client.Key
}

// answered notes that the server has finished a call.
func (s *callers) answered(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.open[id]; k != nil {
		k.answered = true
		return
	}
	delete(s.abandoned, id)
}

// sole returns the pending calls if all unanswered ones are of one client; nil if
// there are none, or of several clients.
func (s *callers) sole() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.untold {
		return nil
	}
	var all []*call
	for _, k := range s.open {
		if k.answered {
			continue
		}
		if len(all) > 0 && all[0].req.Client.Key != k.req.Client.Key {
			return nil
		}
		all = append(all, k)
	}
	if len(all) > 0 {
		for _, key := range s.abandoned {
			if key != all[0].req.Client.Key {
				return nil
			}
		}
	}
	return all
}

// origin is the Origin of a message that belongs to no pending call.
func (s *callers) origin() Origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.several {
		return Origin{Unknown: true}
	}
	return Origin{Client: s.first}
}

// whose returns the calls that may have caused a message of the server, all of one
// client, and its Origin if there are none. k is the call in whose exchange the
// message came; nil outside of any.
func (c *Conn) whose(k *call) ([]*call, Origin) {
	switch {
	case k != nil && k.own: // a request of the gateway, such as one that listens
	case k != nil:
		return []*call{k}, Origin{Client: k.req.Client.Key, Called: true}
	case c.shared, !c.t.private():
		return nil, Origin{Unknown: true}
	default:
		if all := c.callers.sole(); len(all) > 0 {
			return all, Origin{Client: all[0].req.Client.Key, Called: true}
		}
	}
	return nil, c.callers.origin()
}

// peerOf picks a peer of a call's client that can be notified or asked; nil if
// there is none.
func peerOf(calls []*call) Peer {
	for _, k := range calls {
		if k.req.Peer != nil {
			return k.req.Peer
		}
	}
	return nil
}
