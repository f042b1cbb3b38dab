package config

// shown is the policy, one line for each of its parts.
func (p Policy) shown(hidden map[string]bool) *Node {
	line := func(pairs ...Pair) *Node {
		n := MapNode(pairs...)
		n.inline = true
		return n
	}
	cache := line(
		Pair{Key: "lists", Value: DurationNode(p.Cache.Lists)},
		Pair{Key: "results", Value: DurationNode(p.Cache.Results)})
	cache.setList("tools", p.Cache.Tools, "policy.cache.tools", hidden)
	return MapNode(
		Pair{Key: "max_timeout", Value: DurationNode(p.MaxTimeout)},
		Pair{Key: "retry", Value: line(
			Pair{Key: "attempts", Value: IntNode(int64(p.Retry.Attempts))},
			Pair{Key: "pause", Value: DurationNode(p.Retry.Pause)},
			Pair{Key: "max_pause", Value: DurationNode(p.Retry.MaxPause)})},
		Pair{Key: "breaker", Value: line(
			Pair{Key: "failures", Value: IntNode(int64(p.Breaker.Failures))},
			Pair{Key: "open", Value: DurationNode(p.Breaker.Open)},
			Pair{Key: "probes", Value: IntNode(int64(p.Breaker.Probes))})},
		Pair{Key: "rate", Value: p.Rate.shown()},
		Pair{Key: "concurrency", Value: line(
			Pair{Key: "calls", Value: IntNode(int64(p.Concurrency.Calls))},
			Pair{Key: "queue", Value: IntNode(int64(p.Concurrency.Queue))},
			Pair{Key: "wait", Value: DurationNode(p.Concurrency.Wait)})},
		Pair{Key: "cache", Value: cache})
}

func (r Rate) shown() *Node {
	n := MapNode(
		Pair{Key: "calls", Value: NumberNode(r.Calls)},
		Pair{Key: "burst", Value: IntNode(int64(r.Burst))})
	n.inline = true
	return n
}

// shownAuth masks the client's secret, wherever it came from.
func (s *Server) shownAuth() *Node {
	a, n := s.Auth, MapNode()
	text := func(key, v string) { n.setText(key, v, "auth."+key, s.hidden) }
	n.Set("type", StringNode(a.Type))
	text("token_url", RedactURL(a.TokenURL))
	text("auth_url", RedactURL(a.AuthURL))
	text("client_id", a.ClientID)
	if a.ClientSecret != "" {
		n.Set("client_secret", StringNode(mask))
	}
	n.setList("scopes", a.Scopes, "auth.scopes", s.hidden)
	text("audience", a.Audience)
	text("resource", RedactURL(a.Resource))
	text("redirect", a.Redirect)
	return n
}
