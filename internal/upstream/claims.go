package upstream

// Claims are the capabilities to declare to a legacy server: those of the
// connection's only client, as far as the server's config allows, or all allowed
// ones if many clients use it. Requests that a caller can't handle are then
// declined for it.
func Claims(client []byte, allowed []string) []byte {
	if client != nil {
		return filterCaps(client, allowed)
	}
	out := []byte{'{'}
	for _, a := range allowed {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), a...), `":{}`...)
	}
	return append(out, '}')
}
