package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
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

// Replace writes a certificate, its key and the authority's certificate, in PEM, in the place of older ones. What does not fit together, or
// cannot be written whole, is fault.Invalid, and nothing is replaced. Whoever reads the files in between goes on with the older ones, after a
// power cut as well (internal/identity).
func Replace(files identity.Files, cert, key, ca []byte) (err error) {
	if err := fit(cert, key, ca); err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "what was issued cannot be used, so that nothing was replaced", err)
	}
	defer func() {
		if err != nil {
			err = fault.Wrap(fault.Invalid, fault.ReasonStorage, "the certificate cannot be written", err)
		}
	}()
	whole := []*staged{{path: files.CA, data: ca}, {path: files.Key, data: key}, {path: files.Cert, data: cert}}
	defer func() {
		for _, f := range whole {
			f.discard()
		}
	}()
	for _, f := range whole { // a full disk is met here, before anything is replaced
		if err := f.write(); err != nil {
			return err
		}
	}
	if err := keepKey(files); err != nil {
		return err
	}
	for _, f := range whole {
		if err := f.land(); err != nil {
			return err
		}
	}
	if err := os.Remove(files.FormerKey()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fit reports what is wrong with a certificate, its key, or that of the authority that is to have signed it.
func fit(cert, key, ca []byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the authority's certificate is none")
	}
	// Whether it is valid now is not for us to say: the clock here may be another one. Until its end the authority is valid as well.
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: pair.Leaf.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// keepKey has the present key at hand until the certificate is replaced too. The key and the certificate are two files: whoever stops between
// them leaves the new key beside the old certificate.
func keepKey(files identity.Files) error {
	if _, err := tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
		return nil //nolint:nilerr // There is none, or a stop has left what is kept already.
	}
	key, err := os.ReadFile(files.Key)
	if err != nil {
		return err
	}
	former := &staged{path: files.FormerKey(), data: key}
	defer former.discard()
	if err := former.write(); err != nil {
		return err
	}
	return former.land()
}
