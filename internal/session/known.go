package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// What a server lists is kept, so that lists can be answered before it runs. It is
// kept by what it depends on: how the server is started, what the client can do that
// it is started for, and, where each principal sees another list, the principal. Once
// an instance runs its own list counts, and a difference is written down.
//
// Built-in servers are not kept: they start in no time, and change with the program.

// Known is what is kept of a server. It is never changed.
type Known struct {
	Hello upstream.Hello               `json:"hello"`
	Lists map[string][]json.RawMessage `json:"lists"` // by method; what is not there is not known
}

// List returns a list, and whether it is known.
func (k *Known) List(method string) ([][]byte, bool) {
	if k == nil {
		return nil, false
	}
	items, ok := k.Lists[method]
	if !ok {
		return nil, !k.Hello.Lists(method)
	}
	out := make([][]byte, len(items))
	for i, it := range items {
		out[i] = it
	}
	return out, true
}

// maxKnown bounds what is kept of one server, and maxKnownCached how many of those
// are in memory.
const (
	maxKnown       = 4 << 20
	maxKnownCached = 4096
)

// A knownKey names what is kept.
type knownKey struct{ spec, principal string }

// known is what is kept of all servers, as far as it was asked for.
type known struct {
	mu      sync.Mutex
	cached  map[knownKey]*Known // nil for what is not kept
	hidden  map[string]string   // tools that are not offered, and why, as the log has it
	writing sync.Mutex          // held while one is compared and written
}

// keyOfKnown is where the list is kept that the server gives a principal's client
// with these capabilities; nil for no client in particular.
func keyOfKnown(e *catalog.Entry, caps []byte, who string) knownKey {
	sum := sha256.Sum256([]byte(e.WarmKey() + "\x00" + string(upstream.Claims(caps, e.ClientCapabilities))))
	k := knownKey{spec: hex.EncodeToString(sum[:])}
	if e.URL != "" || e.Credential == config.CredentialPerPrincipal {
		k.principal = "=" + who // its server may know the caller, or the session
	}
	return k
}

// find returns what is kept under a key; nil for nothing.
func (r *Registry) find(e *catalog.Entry, key knownKey) *Known {
	r.known.mu.Lock()
	k, ok := r.known.cached[key]
	r.known.mu.Unlock()
	if ok {
		return k
	}
	row, ok, err := r.o.Lists.ServerList(r.life, key.spec, key.principal)
	if ok {
		k = &Known{}
		if err = json.Unmarshal(row.Data, k); err != nil {
			k = nil
		}
	}
	if err != nil {
		if r.life.Err() != nil {
			return nil
		}
		r.o.Log.Warn("what is kept of a server's lists can't be read; the server is asked again", "server", e.ID, "err", err)
	}
	r.remember(key, k)
	return k
}

func (r *Registry) remember(key knownKey, k *Known) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	if len(r.known.cached) >= maxKnownCached || r.known.cached == nil {
		r.known.cached = make(map[knownKey]*Known)
	}
	r.known.cached[key] = k
}

// Known returns what is kept of a server as the session's clients would see it,
// called by a principal; nil for nothing.
func (s *Session) Known(e *catalog.Entry, who string) *Known {
	if !e.KeepsLists() {
		return nil
	}
	if k := s.r.find(e, keyOfKnown(e, s.capabilities(), who)); k != nil {
		return k
	}
	return s.r.find(e, keyOfKnown(e, nil, who))
}

// KnownList returns a list to give to the session's clients without asking the
// server; false where it must be asked. What resources there are may depend on what
// the server remembers in the session.
func (s *Session) KnownList(e *catalog.Entry, who, method string) ([][]byte, bool) {
	if method == wire.MethodListResources && e.Own() && e.Remembers() && s.hasState(e.ID) {
		return nil, false
	}
	items, ok := s.Known(e, who).List(method)
	if ok {
		s.Gave(e.ID, method, items)
	}
	return items, ok
}

// listed reports whether the list that is kept of a server has a tool.
func (r *Registry) listed(e *catalog.Entry, caps []byte, who, tool string) bool {
	if !e.KeepsLists() {
		return false
	}
	k := r.find(e, keyOfKnown(e, caps, who))
	if k == nil {
		k = r.find(e, keyOfKnown(e, nil, who))
	}
	if k == nil {
		return false
	}
	return slices.ContainsFunc(k.Lists[wire.MethodListTools], func(item json.RawMessage) bool {
		return wire.FindString(item, "name") == tool
	})
}

// hidden logs a tool that is not offered, once for all connections to its server.
func (r *Registry) hidden(e *catalog.Entry, tool, why string) {
	key := e.Base() + "\x00" + tool
	r.known.mu.Lock()
	logged := r.known.hidden[key] == why
	if len(r.known.hidden) >= maxKnownCached || r.known.hidden == nil {
		r.known.hidden = make(map[string]string)
	}
	r.known.hidden[key] = why
	r.known.mu.Unlock()
	if !logged {
		r.o.Log.Warn("a tool is hidden: its x-mcp-header is invalid", "server", e.ID, "tool", tool, "because", why)
	}
}

func (s *Session) capabilities() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caps
}

// Gave notes that a list was given to the session's clients without asking an
// instance of theirs.
func (s *Session) Gave(server, method string, items [][]byte) {
	sum := digest(items)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given == nil {
		s.given = make(map[givenList][32]byte)
	}
	s.given[givenList{server, method}] = sum
}

// Given reports whether the clients have a list of a server that it did not confirm.
func (s *Session) Given(server, method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.given[givenList{server, method}]
	return ok
}

// confirm compares a list with what the clients were given instead, and reports
// whether that was another one.
func (s *Session) confirm(server, method string, sum [32]byte) (differs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := givenList{server, method}
	was, ok := s.given[k]
	delete(s.given, k)
	return ok && was != sum
}

type givenList struct{ server, method string }

// digest is the same for lists of the same items.
func digest[T ~[]byte](items []T) [32]byte {
	h := sha256.New()
	for _, it := range items {
		h.Write(compact(it))
		h.Write([]byte{0})
	}
	return [32]byte(h.Sum(nil))
}

func compact(item []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, item) != nil {
		return item
	}
	return b.Bytes()
}

// Learned takes in what a server of the session listed while it runs: who has
// another list from before is told, and what is kept follows.
func (s *Session) Learned(e *catalog.Entry, who, method string, hello upstream.Hello, items [][]byte) {
	sum := digest(items)
	if s.confirm(e.ID, method, sum) {
		s.Announce(e.ID, NoteOf(method))
	}
	// A program's resources may be those of this session.
	if !e.KeepsLists() || method == wire.MethodListResources && e.Own() {
		return
	}
	before := s.Known(e, who)
	if s.r.learned(e, s.capabilities(), who, hello, map[string][][]byte{method: items}) == before {
		return
	}
	for _, other := range s.r.Sessions() {
		o := other.Catalog().Entry(e.ID)
		if other == s || o == nil || o.WarmKey() != e.WarmKey() || !other.Given(e.ID, method) {
			continue
		}
		if up := other.Peek(e.ID); up == nil || !up.Runs() {
			other.Announce(e.ID, NoteOf(method))
		}
	}
}

// learned writes down what a server listed and returns what is known of it now, which
// is the same as before where nothing is new.
func (r *Registry) learned(e *catalog.Entry, caps []byte, who string, hello upstream.Hello, lists map[string][][]byte) *Known {
	r.known.writing.Lock()
	defer r.known.writing.Unlock()
	key, general := keyOfKnown(e, caps, who), keyOfKnown(e, nil, who)
	have := r.find(e, key)
	if all := r.find(e, general); key != general && all != nil {
		if !bytes.Equal(compact(all.Hello.Info), compact(hello.Info)) {
			r.drop(e, general) // the program is another one by now
			r.learnSoon(e)
		} else if have == nil {
			have = all
		}
	}
	next := &Known{
		Hello: upstream.Hello{Version: hello.Version, Info: compact(hello.Info), Capabilities: compact(hello.Capabilities), Instructions: hello.Instructions},
		Lists: make(map[string][]json.RawMessage),
	}
	if have != nil && bytes.Equal(have.Hello.Info, next.Hello.Info) {
		for method, items := range have.Lists {
			next.Lists[method] = items
		}
	}
	for method, items := range lists {
		kept := make([]json.RawMessage, len(items))
		for i, it := range items {
			kept[i] = slices.Clone(compact(it))
		}
		next.Lists[method] = kept
	}
	data, err := encodeKnown(next)
	if err != nil {
		r.o.Log.Warn("what a server lists is not kept", "server", e.ID, "err", err)
		return next
	}
	if have != nil {
		if before, err := encodeKnown(have); err == nil && bytes.Equal(before, data) {
			return have
		}
	}
	if len(data) > maxKnown {
		r.o.Log.Warn("what a server lists is too large to be kept, and it is started for every list", "server", e.ID, "bytes", len(data), "most", maxKnown)
		r.drop(e, key)
		return next
	}
	row := store.ServerList{Key: key.spec, Principal: key.principal, Data: data, Changed: time.Now().UTC()}
	if err := r.o.Lists.PutServerList(context.WithoutCancel(r.life), row); err != nil {
		r.o.Log.Warn("what a server lists is not written down; it is asked again after a restart", "server", e.ID, "err", err)
	}
	r.remember(key, next)
	return next
}

func (r *Registry) drop(e *catalog.Entry, key knownKey) {
	if err := r.o.Lists.DeleteServerList(context.WithoutCancel(r.life), key.spec, key.principal); err != nil {
		r.o.Log.Warn("what is kept of a server's lists is not forgotten", "server", e.ID, "err", err)
	}
	r.remember(key, nil)
}

func encodeKnown(k *Known) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(k)
	return []byte(b.String()), err
}

// NoteOf is what says that a list changed.
func NoteOf(method string) string {
	switch method {
	case wire.MethodListTools:
		return wire.NoteToolsChanged
	case wire.MethodListPrompts:
		return wire.NotePromptsChanged
	}
	return wire.NoteResourcesChanged
}

// checkGiven has an instance that has just started list what the clients of its
// sessions were given before it ran.
func (r *Registry) checkGiven(e *catalog.Entry, s *Session) {
	users := []*Session{s}
	if s == nil {
		users = r.Sessions()
	}
	for _, user := range users {
		for _, method := range upstream.ListMethods {
			if now := user.Catalog().Entry(e.ID); user.Given(e.ID, method) && now != nil && now.WarmKey() == e.WarmKey() {
				r.background(func() { user.check(e, method) })
			}
		}
	}
}

func (s *Session) check(e *catalog.Entry, method string) {
	up := s.Peek(e.ID)
	if up == nil || !up.Runs() {
		return
	}
	ask := upstream.Request{Method: method, Client: &upstream.Client{}, Who: s.Owner, Session: s.ID}
	hello, items, err := up.ReadList(s.r.life, ask)
	if err != nil {
		s.r.o.Log.Debug("a list was not compared with what is kept of it", "server", e.ID, "method", method, "err", err)
		return
	}
	s.Learned(e, s.Owner, method, hello, items)
}
