package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// leastRSA is the size in bits below which RS256 must not be used (RFC 7518).
const leastRSA = 2048

// SigningKey reads the private key with which Tine signs: PEM (PKCS #8, PKCS #1 or
// SEC 1), or a JWK, whose kid is then named in signatures. The key has its
// algorithm. Errors quote nothing of the text.
func SigningKey(text string) (*jose.JSONWebKey, error) {
	key := new(jose.JSONWebKey)
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") {
		if key.UnmarshalJSON([]byte(text)) != nil || !key.Valid() {
			return nil, errors.New("is no JWK that can be read")
		}
	} else {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, errors.New("is neither a private key in PEM nor a JWK")
		}
		if key.Key = parsePrivate(block); key.Key == nil {
			return nil, errors.New("is no private key that can be read; an encrypted one must be decrypted first")
		}
	}
	algorithm := jose.SignatureAlgorithm("")
	switch k := key.Key.(type) {
	case *ecdsa.PrivateKey:
		algorithm = map[int]jose.SignatureAlgorithm{256: jose.ES256, 384: jose.ES384, 521: jose.ES512}[k.Params().BitSize]
	case ed25519.PrivateKey:
		algorithm = jose.EdDSA
		if key.Algorithm == "Ed25519" { // its newer name (RFC 9864)
			key.Algorithm = string(algorithm)
		}
	case *rsa.PrivateKey:
		if k.N.BitLen() < leastRSA {
			return nil, errors.New("is an RSA key of less than 2048 bits")
		}
		algorithm = jose.RS256
		if strings.HasPrefix(key.Algorithm, "PS") || strings.HasPrefix(key.Algorithm, "RS") {
			algorithm = jose.SignatureAlgorithm(key.Algorithm) // an RSA key does not say which
		}
	default:
		return nil, errors.New("is no private key")
	}
	if algorithm == "" || key.Algorithm != "" && key.Algorithm != string(algorithm) {
		return nil, errors.New("is a key of a kind that signs with none of ES256, ES384, ES512, RS256, EdDSA")
	}
	key.Algorithm = string(algorithm)
	if _, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key.Key}, nil); err != nil {
		return nil, errors.New("is a key that can't sign")
	}
	return key, nil
}

// parsePrivate returns nil for what it can't read.
func parsePrivate(block *pem.Block) crypto.PrivateKey {
	switch block.Type {
	case "PRIVATE KEY":
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			return key
		}
	case "RSA PRIVATE KEY":
		if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return key
		}
	case "EC PRIVATE KEY":
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key
		}
	}
	return nil
}

// signingKey is a private key in a config. Not only the whole of it is secret: a text
// that repeats it may break it into other lines.
func signingKey() Value[string] {
	v := Secret(`"${file:tine-key.pem}"`).As("private key in PEM, or a JWK").Then(func(o Object, key string, dst *string) {
		_, err := SigningKey(*dst)
		if n := o.Get(key); err != nil && n.From != "" {
			// It may be half written, or of a rotation that went wrong: as with a
			// file that is missing, this server is off, and the others go on.
			n.Missing, *dst = true, ""
			o.d.unfit = append(o.d.unfit, missing{absent{"the private key " + err.Error(), "mend what the placeholder names"}, n.Pos, join(o.Path, key)})
		} else if err != nil {
			o.Wrong(key, o.Get(key), "%v; write it like ${file:tine-key.pem}", err)
		}
	})
	v.Secrets = func(text string, _ Place, l SecretList) {
		l.Add(text)
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "-----") {
				l.Add(line)
			}
		}
	}
	return v
}
