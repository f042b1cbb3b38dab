package config

// showCopied adds what is for servers that are copied while they run.
func (s *Server) showCopied(n *Node) {
	if s.kind == nil || s.kind.copies == nil || s.kind.Remote {
		return
	}
	n.Set("warm", IntNode(int64(s.Warm)))
	n.Set("fork_ahead", BoolNode(s.ForkAhead))
	switch f := s.OnFork; {
	case f == nil:
	case f.Tool == "":
		n.Set("on_fork", StringNode("notify"))
	case s.hidden["on_fork"] || s.hidden["on_fork.tool"]:
		n.Set("on_fork", StringNode("tool "+mask))
	default:
		n.Set("on_fork", StringNode("tool "+f.Tool))
	}
}
