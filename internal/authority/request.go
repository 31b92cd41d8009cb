package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity"
)

// Request makes a key, in PEM, and asks with it for a certificate. The key stays where it was made.
func Request() (key, request []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fault.Wrap(fault.Internal, "", "a key cannot be made", err)
	}
	if request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private); err != nil {
		return nil, nil, fault.Wrap(fault.Internal, "", "a certificate cannot be asked for", err)
	}
	key, err = encodeKey(private)
	return key, request, err
}

// Asked reads a request and returns its key. Nothing else of it counts: what a certificate says is not for whoever asks to say.
func Asked(request []byte) (public *ecdsa.PublicKey, err error) {
	parsed, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = parsed.CheckSignature()
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the certificate request cannot be used", err)
	}
	public, ok := parsed.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "the certificate request has a key of another kind").WithRemedy("use ECDSA with P-256")
	}
	return public, nil
}

// Sign makes a certificate for the key of a request.
func (a *Authority) Sign(o Order, public *ecdsa.PublicKey, now time.Time) (Certificate, error) {
	return a.sign(o, public, now)
}

// Fingerprint is the SHA-256 of the authority's certificate.
func (a *Authority) Fingerprint() []byte {
	sum := sha256.Sum256(a.cert.Raw)
	return sum[:]
}

// Replace writes a certificate, its key and the authority's certificate, in PEM, in the place of older ones. Whoever reads the files in between
// goes on with the older ones (internal/identity).
func Replace(files identity.Files, cert, key, ca []byte) error {
	for _, f := range []struct {
		path string
		data []byte
	}{{files.CA, ca}, {files.Key, key}, {files.Cert, cert}} {
		if err := replace(f.path, f.data); err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the certificate cannot be written", err)
		}
	}
	return nil
}
