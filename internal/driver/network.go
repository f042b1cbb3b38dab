package driver

import "time"

// MethodNetwork is the method of connections in the journal, where they stand
// among the calls of their server.
const MethodNetwork = "tine/network"

// Network is one connection that a server made to the outside through a driver that
// lets only some of them pass, or was refused. It is reported when it has ended.
type Network struct {
	Server   string
	Session  string // empty when the server is shared
	Ordinal  int
	Host     string // a name, or an address where that was asked for
	Port     int
	Address  string // what was connected to; empty where nothing was
	Protocol string // http, tls or tcp; empty where it did not come to that
	Allowed  bool
	Reason   string // why it was refused or failed; empty where it did neither
	Sent     int64  // bytes that left the server
	Received int64
	Began    time.Time
	Took     time.Duration
}
