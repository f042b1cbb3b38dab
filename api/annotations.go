package api

import (
	"encoding/json"
	"math"
	"reflect"
	"time"
)

// StepAnnotation is the type of a Step that is an annotation, and StepEnd that of the
// last line of the trajectories of several sessions.
const (
	StepAnnotation = "annotation"
	StepEnd        = "end"
)

// NewAnnotation is the body of POST /v1/sessions/{id}/annotations: what a trainer
// notes of a session or of one of its calls. At least one of Reward, Text, TokenIDs,
// Logprobs and Data must be given. An Idempotency-Key header makes a repeated request
// count once.
type NewAnnotation struct {
	// Call is the id of a call of the session, or of an ancestor before the fork. An
	// annotation without one is of the session.
	Call     string          `json:"call,omitempty"`
	Reward   *float64        `json:"reward,omitempty"`
	Text     string          `json:"text,omitempty"`      // what the model said in this turn
	TokenIDs []int64         `json:"token_ids,omitempty"` // each at least 0
	Logprobs []Logprob       `json:"logprobs,omitempty"`  // as many as token ids, where both are given
	Data     json.RawMessage `json:"data,omitempty"`
}

// Annotation answers it. The rest is in the trajectory.
type Annotation struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Session string    `json:"session"`
	Call    string    `json:"call,omitempty"`
	Reward  *float64  `json:"reward,omitempty"`
}

// A Logprob is the logarithm of a probability. NaN stands for one that is not known,
// which is null in JSON.
type Logprob float64

// MarshalJSON implements json.Marshaler.
func (p Logprob) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(p)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(p))
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Logprob) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*p = Logprob(math.NaN())
		return nil
	}
	var n float64
	if err := json.Unmarshal(b, &n); err != nil {
		value := "object"
		switch b[0] {
		case '"':
			value = "string"
		case '[':
			value = "array"
		case 't', 'f':
			value = "bool"
		case '{':
		default:
			value = "number " + string(b)
		}
		return &json.UnmarshalTypeError{Value: value, Type: reflect.TypeFor[float64]()}
	}
	*p = Logprob(n)
	return nil
}
