package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	File string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority for one test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of a test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	var cert []byte
	cert, a.key = a.sign(t, a.cert, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		t.Fatal(err)
	}
	a.File, _ = write(t, cert, a.key)
	return a
}

// Pool returns a pool that trusts only the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Client returns a new client's certificate.
func (a *Authority) Client(t testing.TB) tls.Certificate {
	t.Helper()
	cert, key := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "client of a test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert)
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}
}

// clientFiles writes a client's certificate and its key.
func (a *Authority) clientFiles(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	c := a.Client(t)
	return write(t, c.Certificate[0], c.PrivateKey.(*ecdsa.PrivateKey))
}

// sign returns a new certificate and its key; without a parent it is self-signed.
func (a *Authority) sign(t testing.TB, c, parent *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key := Sure(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	signer := a.key
	if parent == nil {
		parent, signer = c, key
	}
	cert := Sure(x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer))(t)
	return cert, key
}

// write writes a certificate and its key into files.
func write(t testing.TB, cert []byte, key *ecdsa.PrivateKey) (certFile, keyFile string) {
	t.Helper()
	der := Sure(x509.MarshalECPrivateKey(key))(t)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		Must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return certFile, keyFile
}

// StartTLS starts a server that only accepts TLS, with a certificate of the authority for the names
// and addresses. It requires client certificates of that authority, unless the arguments contain
// "--tls-auth-clients no".
func StartTLS(t testing.TB, a *Authority, names []string, args ...string) *Server {
	t.Helper()
	cert, key := a.server(t, names)
	s := Start(t, append(slices.Clone(args),
		"--port", "0", "--tls-port", portOfServer, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.File)...)
	s.scheme = "rediss://"
	return s
}

// server writes a certificate and its key, for a server with the names and addresses. It may also
// be a client of another such server, as replicas and sentinels are.
func (a *Authority) server(t testing.TB, names []string) (certFile, keyFile string) {
	t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "server of a test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	der, private := a.sign(t, c, a.cert)
	return write(t, der, private)
}
