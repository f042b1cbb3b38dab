package config

// shown is the policy, one line for each of its parts.
func (p Policy) shown(hidden map[string]bool) *node {
	line := func(pairs ...pair) *node {
		n := mapNode(pairs...)
		n.inline = true
		return n
	}
	cache := line(
		pair{key: "lists", value: durationNode(p.Cache.Lists)},
		pair{key: "results", value: durationNode(p.Cache.Results)})
	cache.setList("tools", p.Cache.Tools, "policy.cache.tools", hidden)
	return mapNode(
		pair{key: "max_timeout", value: durationNode(p.MaxTimeout)},
		pair{key: "retry", value: line(
			pair{key: "attempts", value: intNode(int64(p.Retry.Attempts))},
			pair{key: "pause", value: durationNode(p.Retry.Pause)},
			pair{key: "max_pause", value: durationNode(p.Retry.MaxPause)})},
		pair{key: "breaker", value: line(
			pair{key: "failures", value: intNode(int64(p.Breaker.Failures))},
			pair{key: "open", value: durationNode(p.Breaker.Open)},
			pair{key: "probes", value: intNode(int64(p.Breaker.Probes))})},
		pair{key: "rate", value: p.Rate.shown()},
		pair{key: "concurrency", value: line(
			pair{key: "calls", value: intNode(int64(p.Concurrency.Calls))},
			pair{key: "queue", value: intNode(int64(p.Concurrency.Queue))},
			pair{key: "wait", value: durationNode(p.Concurrency.Wait)})},
		pair{key: "cache", value: cache})
}

func (r Rate) shown() *node {
	n := mapNode(
		pair{key: "calls", value: numberNode(r.Calls)},
		pair{key: "burst", value: intNode(int64(r.Burst))})
	n.inline = true
	return n
}

// shownAuth masks the client's secret, wherever it came from.
func (s *Server) shownAuth() *node {
	a, n := s.Auth, mapNode()
	text := func(key, v string) { n.setText(key, v, "auth."+key, s.hidden) }
	n.set("type", stringNode(a.Type))
	text("token_url", RedactURL(a.TokenURL))
	text("auth_url", RedactURL(a.AuthURL))
	text("client_id", a.ClientID)
	if a.ClientSecret != "" {
		n.set("client_secret", stringNode(mask))
	}
	n.setList("scopes", a.Scopes, "auth.scopes", s.hidden)
	text("audience", a.Audience)
	text("resource", RedactURL(a.Resource))
	text("redirect", a.Redirect)
	return n
}
