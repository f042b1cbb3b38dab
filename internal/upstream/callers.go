package upstream

import "sync"

// maxAbandoned bounds the calls that are remembered after they were given up.
const maxAbandoned = 1024

// callers knows whose calls a server has under way on a connection. What a server
// says outside of an exchange names no call, and several clients may use the
// connection: those of a session, or of a session and its forks.
//
// A server asks and logs for calls that it has not answered. So what it says is
// proven to be for a client where every call without an answer is that client's.
// A call that was cancelled or timed out counts until the server answers it, as
// many servers go on with it.
type callers struct {
	mu   sync.Mutex
	open map[string]*call // by id, until the caller has what it gets
	// abandoned are the calls that were given up, by id, with their client's key.
	abandoned map[string]string
	// untold is set when there were too many of those to remember.
	untold  bool
	first   string // the client that called first; empty for none
	several bool   // another one has called since
}

// An Origin says whose what a server says outside of an exchange is. The zero
// Origin is that of a server that no client has called.
type Origin struct {
	// Client is the key of the only client that it can be for; empty for none in
	// particular.
	Client string
	// Called is set where that client has a call under way which caused it.
	Called bool
	// Unknown is set where it can't be told.
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

// end notes that the caller of a call waits no more.
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

// answered notes that the server has done with a call.
func (s *callers) answered(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.open[id]; k != nil {
		k.answered = true
		return
	}
	delete(s.abandoned, id)
}

// sole returns the calls under way where all that have no answer are one
// client's; nil where there are none, or of several.
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

// origin is that of what belongs to no call under way.
func (s *callers) origin() Origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.several {
		return Origin{Unknown: true}
	}
	return Origin{Client: s.first}
}

// whose returns the calls that may have caused what a server says, all of one
// client, and where it comes from if there are none. k is the call in whose
// exchange it was said; nil when it was said outside of any.
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

// peerOf picks the side of a call's client that can be told or asked something;
// nil where none can.
func peerOf(calls []*call) Peer {
	for _, k := range calls {
		if k.req.Peer != nil {
			return k.req.Peer
		}
	}
	return nil
}
