package telemetry_test

import (
	"testing"

	"github.com/tine-mcp/tine/internal/telemetry"
)

func TestValuesMasksOnlyWhatIsKnown(t *testing.T) {
	r := telemetry.NewRedactor()
	if in := []byte(`{"message":"no"}`); string(r.Values(in)) != string(in) {
		t.Error("an unknown value is masked")
	}
	r.Set([]string{"hunter2/hunter2", "123456789"})
	for in, want := range map[string]string{
		`{"code":-32602,"message":"bad key hunter2/hunter2"}`:   `{"code":-32602,"message":"bad key ****"}`,
		`{"message":"bad key hunter2\/hunter2!"}`:               `{"message":"bad key ****!"}`,
		`{"message":"api_key sk-abcdefghijklmnop is not ours"}`: `{"message":"api_key sk-abcdefghijklmnop is not ours"}`,
		`{"password":"of somebody else","n":1.0}`:               `{"password":"of somebody else","n":1.0}`,
		`{"n":123456789}`: `{"n":"****"}`,
	} {
		if got := string(r.Values([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	if got := (*telemetry.Redactor)(nil).Values([]byte("x")); string(got) != "x" {
		t.Errorf("nil masks: %s", got)
	}
}
