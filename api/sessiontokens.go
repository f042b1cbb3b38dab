package api

import "time"

// Rights that a further token of a session may give besides calling servers, reading the
// session and the calls that were made with it. The session's own token gives all of them.
const (
	AllowClose      = "close"      // close the session
	AllowFork       = "fork"       // fork it and list its forks; not with servers
	AllowRewind     = "rewind"     // bring it back to a snapshot
	AllowSnapshot   = "snapshot"   // freeze it and list its snapshots
	AllowTrajectory = "trajectory" // read its trajectory and all of its calls; not with servers
)

// Allows lists the rights.
var Allows = [...]string{AllowClose, AllowFork, AllowRewind, AllowSnapshot, AllowTrajectory}

// NewSessionToken is the body of POST /v1/sessions/{id}/tokens: a further token of a
// session, which is its owner's there, within limits.
type NewSessionToken struct {
	// Run is what the token is for: calls that are made with it have it in the journal. 1 to
	// 64 letters, digits, dots, dashes, underscores and @.
	Run string `json:"run,omitempty"`
	// Servers are the servers that it reaches. Without them it reaches all of the session;
	// with an empty list none.
	Servers []string `json:"servers,omitzero"`
	// TTL is how long it is good for, at most 8784h, and never longer than the session;
	// default 24h, and 0s for as long as the session.
	TTL string `json:"ttl,omitempty"`
	// Allow are rights that it gives besides: close, fork, rewind, snapshot, trajectory.
	Allow []string `json:"allow,omitempty"`
}

// SessionToken is a further token of a session, without the token itself.
type SessionToken struct {
	ID      string    `json:"id"`
	Session string    `json:"session"`
	Run     string    `json:"run,omitempty"`
	Servers []string  `json:"servers,omitzero"` // absent for all
	Allow   []string  `json:"allow,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
}

// MintedToken answers NewSessionToken.
type MintedToken struct {
	SessionToken
	// Token is the bearer token. It is shown once.
	Token string `json:"token"`
}

// SessionTokenList answers GET /v1/sessions/{id}/tokens: the oldest first.
type SessionTokenList struct {
	Tokens []SessionToken `json:"tokens"`
}

// RevokedTokens answers DELETE /v1/sessions/{id}/tokens?run=.
type RevokedTokens struct {
	Revoked int `json:"revoked"`
}
