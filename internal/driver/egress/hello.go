package egress

// What the first bytes of a client are.
const (
	helloPart  = iota // the beginning of a ClientHello, or nothing yet
	helloWhole        // a whole one
	helloNone         // no TLS
	helloBad          // TLS, but nothing that can be read
)

const (
	recordHandshake = 22
	recordHead      = 5
	recordMost      = 1<<14 + 256
	clientHello     = 1
	messageHead     = 4
	extServerName   = 0
	nameTypeHost    = 0
)

// readHello finds the names of servers in a ClientHello, which may be spread
// over several records and may be the last of them in part. Whatever looks like
// TLS and does not begin with a ClientHello is bad: some servers pass over a
// harmless record before it, and would see a name that we did not.
func readHello(b []byte) (names []string, state int) {
	var message []byte
	for {
		if len(b) > 0 && (b[0] < 20 || b[0] > 23) || len(b) > 1 && b[1] != 3 {
			if message != nil {
				return nil, helloBad
			}
			return nil, helloNone
		}
		if len(b) > 1 && b[0] != recordHandshake {
			return nil, helloBad
		}
		if len(b) < recordHead {
			return nil, helloPart
		}
		size := int(b[3])<<8 | int(b[4])
		if size == 0 || size > recordMost {
			return nil, helloBad
		}
		body := b[recordHead:]
		whole := len(body) >= size
		body = body[:min(size, len(body))]
		message = append(message, body...)
		if len(message) > 0 && message[0] != clientHello {
			return nil, helloBad
		}
		if len(message) >= messageHead {
			length := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			if length > maxHello {
				return nil, helloBad
			}
			if len(message) >= messageHead+length {
				names, ok := serverNames(message[messageHead : messageHead+length])
				if !ok {
					return nil, helloBad
				}
				return names, helloWhole
			}
		}
		if !whole {
			return nil, helloPart
		}
		b = b[recordHead+size:]
	}
}

// serverNames reads the body of a ClientHello.
func serverNames(b []byte) (names []string, ok bool) {
	r := &bytesOf{b, true}
	r.take(2 + 32)      // version and random
	r.take(r.number(1)) // session
	r.take(r.number(2)) // ciphers
	r.take(r.number(1)) // compressions
	if !r.ok || len(r.left) == 0 {
		return nil, r.ok // without extensions
	}
	all := r.part()
	if len(r.left) != 0 {
		return nil, false
	}
	for all.ok && len(all.left) > 0 {
		kind := all.number(2)
		ext := all.part()
		if kind != extServerName {
			continue
		}
		list := ext.part()
		for list.ok && len(list.left) > 0 {
			kind := list.number(1)
			name := list.take(list.number(2))
			if kind != nameTypeHost {
				return nil, false
			}
			names = append(names, string(name))
		}
		if !list.ok || len(ext.left) != 0 {
			return nil, false
		}
	}
	return names, all.ok
}

// bytesOf are bytes that are read from the front; ok is false once there were
// too few.
type bytesOf struct {
	left []byte
	ok   bool
}

func (b *bytesOf) take(n int) []byte {
	if !b.ok || n > len(b.left) {
		b.ok = false
		return nil
	}
	got := b.left[:n]
	b.left = b.left[n:]
	return got
}

// part takes what a length of two bytes stands before.
func (b *bytesOf) part() *bytesOf {
	got := b.take(b.number(2))
	return &bytesOf{got, b.ok}
}

func (b *bytesOf) number(size int) int {
	n := 0
	for _, c := range b.take(size) {
		n = n<<8 | int(c)
	}
	return n
}
