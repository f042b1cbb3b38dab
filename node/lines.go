package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// lineHead is as much of a line as is enough to see whose answer it is.
const lineHead = 64 << 10

// Read gives the SDK the program's messages, a line each. The SDK would end the connection
// with a line that is none, or that is too long.
func (p *process) Read(b []byte) (int, error) {
	for len(p.pending) == 0 {
		if err := p.next(); err != nil {
			if errors.Is(err, io.EOF) {
				p.left.Store(true)
			}
			return 0, err
		}
	}
	n := copy(b, p.pending)
	p.pending = p.pending[n:]
	return n, nil
}

// next has pending be the next line that is a message.
func (p *process) next() error {
	p.long = nil
	line, err := p.stdout.ReadSlice('\n')
	switch begin := bytes.TrimLeft(line, space); {
	case len(begin) == 0 || begin[0] != '{' && begin[0] != '[':
		return p.skip(line, err)
	case errors.Is(err, bufio.ErrBufferFull):
		return p.rest(line)
	case err != nil && len(line) == 0:
		return err
	}
	p.pending = line // an error comes again with the next one
	return nil
}

// skip leaves out a line that is no message.
func (p *process) skip(line []byte, err error) error {
	_, _ = p.stray.Write(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = p.stdout.ReadSlice('\n')
	}
	return err
}

// rest reads the rest of a long line. In the place of one that is too long there is an
// error for the call that it answers.
func (p *process) rest(head []byte) error {
	p.long = bytes.Clone(head)
	for err := bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
		var more []byte
		more, err = p.stdout.ReadSlice('\n')
		if len(p.long) <= maxMessage {
			p.long = append(p.long, more...)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err // the connection ended in the middle of a message
		}
	}
	if p.pending = p.long; len(p.long) <= maxMessage {
		return nil
	}
	p.pending = tooLongAnswer(p.long[:lineHead])
	if p.long = nil; p.pending == nil {
		p.lines.over.Store(true)
		return errTooLong
	}
	return nil
}

// tooLongAnswer is an error that answers what a message with this beginning answers; nil if
// it does not say that.
func tooLongAnswer(head []byte) []byte {
	for name, value := range members(head) {
		switch string(name) {
		case "method":
			return nil
		case "id":
			if !json.Valid(value) {
				return nil
			}
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%q,"data":%s}}`+"\n",
				value, errTooLong.Error(), kindData(ErrOutcomeUnknown))
		}
	}
	return nil
}
