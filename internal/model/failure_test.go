package model_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestErrorsOfTheEndpoint(t *testing.T) {
	const said = "the endpoint's words with the key " + testKey + "."
	for _, tt := range []struct {
		reply modeltest.Reply
		kind  api.Kind
		again bool
		words []string
	}{
		{modeltest.Reply{Status: 400}, api.KindInvalid, false, []string{"refuses the request", "status 400", "the endpoint's words"}},
		{modeltest.Reply{Status: 401}, api.KindRefused, false, []string{"refuses the key", "_API_KEY"}},
		{modeltest.Reply{Status: 402}, api.KindRefused, false, []string{"credit"}},
		{modeltest.Reply{Status: 403}, api.KindRefused, false, []string{"does not allow", "the endpoint's words"}},
		{modeltest.Reply{Status: 404}, api.KindInvalid, false, []string{"does not know", "name of the model"}},
		{modeltest.Reply{Status: 413}, api.KindInvalid, false, []string{"too large"}},
		{modeltest.Reply{Status: 422}, api.KindInvalid, false, []string{"refuses the request"}},
		{modeltest.Reply{Status: 429, Type: "billing_error"}, api.KindRefused, false, []string{"credit"}},
		{modeltest.Reply{Status: 429}, api.KindRefused, true, []string{"limits the rate"}},
		{modeltest.Reply{Status: 500}, api.KindInfrastructure, true, []string{"failed", "try again"}},
		{modeltest.Reply{Status: 503}, api.KindInfrastructure, true, []string{"failed", "status 503"}},
		{modeltest.Reply{Status: 307, Header: map[string]string{"Location": "/v1/elsewhere"}}, api.KindInvalid, false, []string{"redirects", "base_url"}},
	} {
		each(t, func(t *testing.T, name string, delta func(string)) {
			tt.reply.Message = said
			s := modeltest.New(t, tt.reply)
			e := failed(t, open(t, s, name, model.Options{Retries: -1}), question("?"), delta)
			if e.Kind != tt.kind || e.Retryable != tt.again || e.Status != tt.reply.Status || (e.RetryAfter > 0) != (tt.again && e.Status == 429) {
				t.Errorf("status %d: %+v", tt.reply.Status, e)
			}
			testkit.Has(t, "error", e.Message, append(tt.words, name)...)
			testkit.Lacks(t, "error", e.Message, testKey, testKey[:12])
		})
	}
}

// An error may come after the status, within a stream.
func TestErrorsInAStream(t *testing.T) {
	for _, tt := range []struct {
		name, fault string
		kind        api.Kind
		status      int
	}{
		{claudeName, "overloaded_error", api.KindInfrastructure, 529},
		{claudeName, "rate_limit_error", api.KindRefused, 429},
		{claudeName, "invalid_request_error", api.KindInvalid, 400},
		{claudeName, "authentication_error", api.KindRefused, 401},
		{claudeName, "permission_error", api.KindRefused, 403},
		{claudeName, "not_found_error", api.KindInvalid, 404},
		{claudeName, "billing_error", api.KindRefused, 402},
		{claudeName, "timeout_error", api.KindInfrastructure, 504},
		{claudeName, "new_error", api.KindInfrastructure, 500},
		{gptName, "server_error", api.KindInfrastructure, 500},
		{gptName, "rate_limit_exceeded", api.KindRefused, 429},
		{gptName, "invalid_request_error", api.KindInvalid, 400},
	} {
		s := modeltest.New(t, modeltest.Reply{Text: "Ah", Fault: tt.fault, Message: "why"})
		e := failed(t, open(t, s, tt.name, model.Options{Retries: -1}), question("?"), func(string) {})
		if e.Kind != tt.kind || e.Status != tt.status || tt.status != 401 && !strings.Contains(e.Message, "why") {
			t.Errorf("%s: %+v", tt.fault, e)
		}
	}
}

// A client that follows redirects would send the key along.
func TestRedirectsAreNotFollowed(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent on with %v", r.Header) }))
		defer other.Close()
		s := modeltest.New(t, modeltest.Reply{Status: 308, Header: map[string]string{"Location": other.URL}})
		e := failed(t, open(t, s, name, model.Options{}), question("?"), delta)
		testkit.Has(t, "error", e.Message, "redirects")
	})
}

func TestEndpointThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	each(t, func(t *testing.T, name string, delta func(string)) {
		m := open(t, nil, name, model.Options{BaseURL: "http://" + l.Addr().String(), Retries: -1, Client: &http.Client{Transport: &http.Transport{}}})
		reply, err := m.Ask(t.Context(), question("?"), delta)
		e := asAPI(t, err)
		if e.Kind != api.KindInfrastructure || !e.Retryable || reply.Usage.Tokens() != 0 {
			t.Errorf("error %+v, usage %+v", e, reply.Usage)
		}
		testkit.Has(t, "error", e.Message, name, "can't reach "+l.Addr().String(), "refused", "base_url")
	})
}

func TestReplyThatIsTooLarge(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: strings.Repeat("y", 20<<10), Huge: 64 << 20})
		e := failed(t, open(t, s, name, model.Options{MaxReply: 10 << 10}), question("?"), delta)
		if e.Kind != api.KindInfrastructure || e.Retryable || len(s.Requests()) != 1 {
			t.Errorf("error %+v after %d requests", e, len(s.Requests()))
		}
		testkit.Has(t, "error", e.Message, name, "larger than 10240 bytes", "max_reply")
	})
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Status: 400, Message: strings.Repeat("long ", 1<<20)})
		if e := failed(t, open(t, s, name, model.Options{}), question("?"), delta); len(e.Message) > 2000 || e.Kind != api.KindInvalid {
			t.Errorf("an error of %d bytes", len(e.Message))
		}
	})
	each(t, func(t *testing.T, name string, delta func(string)) {
		var calls []modeltest.Call
		for range 1000 {
			calls = append(calls, modeltest.Call{ID: "c" + string(rune('a'+len(calls))), Name: "add", Arguments: "{}"})
		}
		s := modeltest.New(t, modeltest.Reply{Calls: calls})
		e := failed(t, open(t, s, name, model.Options{Retries: -1}), question("?"), delta)
		testkit.Has(t, "error", e.Message, "256 are allowed")
	})
}

func TestReplyThatIsNone(t *testing.T) {
	for _, r := range []modeltest.Reply{
		{Body: "<html>Sign in</html>", Header: map[string]string{"Content-Type": "text/html"}},
		{Body: `{"choices":[]}`, Header: map[string]string{"Content-Type": "application/json"}},
		{Body: `nonsense`, Header: map[string]string{"Content-Type": "application/json"}},
		{Body: "event: message_start\ndata: {\n\n", Header: map[string]string{"Content-Type": "text/event-stream"}},
		{Body: "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":7,\"content_block\":{}}\n\n", Header: map[string]string{"Content-Type": "text/event-stream"}},
	} {
		each(t, func(t *testing.T, name string, delta func(string)) {
			s := modeltest.New(t, r)
			e := failed(t, open(t, s, name, model.Options{Retries: -1}), question("?"), delta)
			if e.Kind != api.KindInfrastructure {
				t.Errorf("%s: %+v", r.Body, e)
			}
			testkit.Lacks(t, "error", e.Message, "invalid character", "unmarshal")
		})
	}
}

// A cancelled call ends at once, and the endpoint sees its client leave.
func TestCancelInAReply(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: "Wait for it", Hang: true})
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("the user has left")
		done := make(chan error, 1)
		m := open(t, s, name, model.Options{Timeout: time.Hour})
		go func() {
			_, err := m.Ask(ctx, question("?"), delta)
			done <- err
		}()
		testkit.Within(t, "a reply that hangs", s.Hung)
		cancel(reason)
		err := testkit.Within(t, "the end of the call", done)
		testkit.Within(t, "the end of the connection", s.Left)
		if e := asAPI(t, err); e.Kind != api.KindRefused || e.Retryable || !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
			t.Errorf("error %+v", e)
		}
	})
}
