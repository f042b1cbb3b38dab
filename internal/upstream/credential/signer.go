package credential

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"errors"

	"github.com/go-jose/go-jose/v4"
)

// algEd25519 is EdDSA by its newer name, which says the curve too (RFC 9864). A list may
// have either name, and signatures have the one that it has.
const algEd25519 = "Ed25519"

// newSigner makes a signer. The library does not know the newer name of EdDSA.
func newSigner(alg string, key crypto.PrivateKey, id string, o *jose.SignerOptions) (jose.Signer, error) {
	signing := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(alg), Key: jose.JSONWebKey{Key: key, KeyID: id}}
	if alg == algEd25519 {
		private, ok := key.(ed25519.PrivateKey)
		if !ok {
			return nil, errors.New("the key is none of Ed25519")
		}
		signing.Key = edSigner{private, id}
	}
	return jose.NewSigner(signing, o)
}

// edSigner signs by Ed25519.
type edSigner struct {
	key ed25519.PrivateKey
	id  string
}

func (s edSigner) Public() *jose.JSONWebKey {
	return &jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id}
}

func (s edSigner) Algs() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{algEd25519}
}

func (s edSigner) SignPayload(payload []byte, _ jose.SignatureAlgorithm) ([]byte, error) {
	return s.key.Sign(rand.Reader, payload, crypto.Hash(0))
}
