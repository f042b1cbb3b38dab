package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/wire"
)

// whole sends a request whose reply is one JSON value.
func (e *endpoint) whole(ctx context.Context, path string, header http.Header, request, reply any) error {
	resp, err := e.post(ctx, path, header, request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if media := mediaType(resp); media != "application/json" && !strings.HasSuffix(media, "+json") {
		return errStrange
	}
	err = json.NewDecoder(bytes.NewReader(body)).Decode(reply)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errCut
	}
	return understood(err)
}

// stream sends a request whose reply is server-sent events, and calls each with those
// that have data. It ends with the stream, or as soon as each reports that no more are
// wanted. Whether the reply is complete is for the caller to say.
func (e *endpoint) stream(ctx context.Context, path string, header http.Header, request any, each func(wire.Event) (more bool, err error)) error {
	resp, err := e.post(ctx, path, header, request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	events := wire.NewEventReader(resp.Body, int(min(e.max, math.MaxInt32>>1)))
	defer events.Release()
	for some := false; ; {
		event, err := events.Next()
		var large *wire.ErrTooLarge
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			if !some && mediaType(resp) != "text/event-stream" {
				return errStrange
			}
			return nil
		case errors.As(err, &large):
			return &errTooLarge{int64(large.Limit)}
		case err != nil:
			return err
		}
		if len(event.Data) == 0 {
			continue
		}
		some = true
		if more, err := each(event); err != nil || !more {
			return err
		}
	}
}

func mediaType(resp *http.Response) string {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return media
}

// decode reads the data of an event.
func decode(data []byte, into any) error { return understood(json.Unmarshal(data, into)) }

// understood lets a field of a wrong type pass, which stays empty: compatible endpoints
// send some, and few of them matter.
func understood(err error) error {
	var odd *json.UnmarshalTypeError
	if err == nil || errors.As(err, &odd) && odd.Field != "" {
		return nil
	}
	return errStrange
}

// A looseText is a string of a reply. Another value is taken as it is written: some
// endpoints send the arguments of a call as an object, or its id as a number.
type looseText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *looseText) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	*t = looseText(s)
	return nil
}

// A looseInt is a whole number of a reply, which some endpoints send as 12.0 or "12". It
// is -1 if it is no number.
type looseInt int64

// UnmarshalJSON implements json.Unmarshaler.
func (i *looseInt) UnmarshalJSON(raw []byte) error {
	const most = 1 << 53
	n, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	switch {
	case string(raw) == "null":
	case err != nil || math.IsNaN(n):
		*i = -1
	default:
		*i = looseInt(min(max(n, -most), most))
	}
	return nil
}

// present is raw, unless it is null.
func present(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
