package config

import (
	"encoding/json"
	"slices"
	"time"
)

// A Kind is what a driver adds to an entry of servers: a key that is named as the
// driver, and a map of keys below it. KindOf makes one.
type Kind struct {
	// About describes the key. Its name is the driver's.
	About
	// Around is the key that it stands around, such as command; empty where the kind
	// is a way to run or reach a server by itself.
	Around string
	// AroundMend says what to do where that key is missing.
	AroundMend string
	// Remote is whether another system runs the instances: Tine shows itself to
	// them without a person, and they see no directory of this machine.
	Remote bool
	// Beside are the keys of an entry that go with it, of those that go with some
	// servers only.
	Beside []string
	// Elsewhere says where in its map it has what other servers say with a key of the
	// entry.
	Elsewhere map[string]string
	// NoWorkspace says why its servers see no workspace; empty where they do.
	NoWorkspace string
	// Copier is the kind among those that copy a running server, in words; empty for
	// one that copies none.
	Copier string
	// Short is the map that a value in its place stands for; nil where it stands for
	// none.
	Short func(n *Node) *Node
	// Unfit says why its servers can't run on a system, as Go names it, and what to do;
	// empty where they can. Nil for a kind that runs on all.
	Unfit func(system string) string
	// Budget is what an instance may need by default, in bytes.
	Budget int64

	read    func(o Object, s *Server) any
	check   func(o Object, s *Server)
	fork    func(o Object, s *Server) bool
	copies  func(s *Server) string
	connect func(s *Server) time.Duration
	fill    func(s *Server)
	target  func(s *Server) string
	show    func(s *Server) *Node
	secrets func(s *Server, l SecretList)
	meaning func(options any) any
	pinned  func(options any) any
	unpin   func(b json.RawMessage) (any, error)
}

// KindOf describes a kind whose map is read into T.
type KindOf[T any] struct {
	Kind
	Keys Table[T]
	// Read reads what stands behind the key; nil where there is nothing, or where it
	// says that there is none.
	Read func(o Object, s *Server) *T
	// Check complains about what does not go together, when the whole entry is read.
	Check func(o Object, s *Server, t *T)
	// Fork complains about what fork says, and reports whether nothing else is to be
	// said of it; nil where what holds for a program does.
	Fork func(o Object, s *Server, t *T) bool
	// Copies says why a running server can't be copied; empty where it can. Nil for a
	// driver that copies none.
	Copies func(s *Server, t *T) string
	// Connect is how long a start may take by default.
	Connect func(s *Server) time.Duration
	// Fill sets the defaults that are not the table's; nil where there are none.
	Fill func(s *Server, t *T)
	// Show mends the keys as they are shown; nil where the table says all.
	Show func(s *Server, t *T, n *Node)
	// Target is what a person is shown of where the server is.
	Target func(s *Server, t *T) string
	// Same takes out what says nothing of what the server is.
	Same func(t *T)
	// Instance takes out what says nothing of an instance that runs: one is found
	// again by the rest.
	Instance func(t *T)
}

// Make is the kind.
func (k KindOf[T]) Make() *Kind {
	kind := k.Kind
	kind.Keys = k.Keys.About()
	of := func(s *Server) *T { return s.Options.(*T) }
	at := func(s *Server) Place { return Place{kind.Name, s.hidden} }
	kind.read = func(o Object, s *Server) any {
		if t := k.Read(o, s); t != nil {
			return t
		}
		return nil
	}
	kind.check = func(o Object, s *Server) {
		if k.Check != nil {
			k.Check(o, s, of(s))
		}
	}
	kind.fork = func(o Object, s *Server) bool { return k.Fork != nil && k.Fork(o, s, of(s)) }
	if k.Copies != nil {
		kind.copies = func(s *Server) string { return k.Copies(s, of(s)) }
	}
	kind.connect = k.Connect
	kind.fill = func(s *Server) {
		k.Keys.Fill(of(s))
		if k.Fill != nil {
			k.Fill(s, of(s))
		}
	}
	kind.target = func(s *Server) string { return k.Target(s, of(s)) }
	kind.show = func(s *Server) *Node {
		n := k.Keys.show(of(s), at(s))
		if k.Show != nil {
			k.Show(s, of(s), n)
		}
		return n
	}
	kind.secrets = func(s *Server, l SecretList) { k.Keys.secrets(of(s), at(s), l) }
	without := func(options any, take func(*T)) any {
		c := *options.(*T)
		if take != nil {
			take(&c)
		}
		return &c
	}
	kind.meaning = func(options any) any {
		c := without(options, k.Same)
		k.Keys.Tidy(c.(*T))
		return c
	}
	kind.pinned = func(options any) any { return without(options, k.Instance) }
	kind.unpin = func(b json.RawMessage) (any, error) {
		t := new(T)
		return t, json.Unmarshal(b, t)
	}
	return &kind
}

// kindOf finds a kind by its name.
func kindOf(name string) *Kind {
	for _, k := range kinds {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// kinds are those of all drivers that have keys of their own.
var kinds []*Kind

// Register adds the kinds of drivers to what a config may have. It is called before
// any config is read.
func Register(all ...*Kind) {
	for _, k := range all {
		if kindOf(k.Name) != nil {
			continue
		}
		kinds = append(kinds, k)
		drivers = slices.Insert(drivers, slices.Index(drivers, "url"), k.Name)
		for i, key := range serverTable {
			if slices.Contains(k.Beside, key.Name) {
				serverTable[i] = key.With(append(slices.Clone(key.beside), k.Name)...)
			}
		}
		serverTable[slices.Index(serverTable.Names(), "driver")] = driverKey()
		serverTable = slices.Insert(serverTable, slices.Index(serverTable.Names(), "preset"), kindKey(k))
		if k.Around == "" {
			wayKeys = slices.Insert(wayKeys, slices.Index(wayKeys, "preset"), k.Name)
		}
	}
}

// Copiers are the drivers that can copy a running server, in words.
func Copiers() []string {
	all := []string{"builtin"}
	for _, k := range kinds {
		if k.Copier != "" {
			all = append(all, k.Copier)
		}
	}
	return all
}

// alone is the key of a kind that runs or reaches a server by itself; empty where the
// entry has none.
func (o Object) alone() string {
	for _, k := range kinds {
		if k.Around == "" && o.n.Get(k.Name) != nil {
			return k.Name
		}
	}
	return ""
}

// Transports of a server that a driver isolates.
const (
	ContainerStdio = "stdio"
	ContainerHTTP  = "http"
)

// ContainerTransports are all of them.
var ContainerTransports = []string{ContainerStdio, ContainerHTTP}

// FillTransport sets what is open of how such a server speaks: a port means HTTP, at /mcp.
func FillTransport(transport *string, port int, path *string) {
	if *transport == "" {
		*transport = ContainerStdio
		if port > 0 {
			*transport = ContainerHTTP
		}
	}
	if *transport == ContainerHTTP {
		SetDefault(path, "/mcp")
	}
}

// Bounds and defaults of what isolates a server.
const (
	MinMemory     = 6 << 20 // the least that an engine gives a container
	DefaultMemory = 2 << 30
	DefaultPids   = 512
	MaxPids       = 1 << 22
)
