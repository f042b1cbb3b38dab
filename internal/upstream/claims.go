package upstream

// Claims are the capabilities to declare to a legacy server: those of the one
// client the connection is for, as far as the server's config allows, or the
// allowed ones where many use it. What a caller then lacks is declined for it.
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
