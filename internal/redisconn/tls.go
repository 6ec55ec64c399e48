package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// secure makes connections with TLS. The driver's own handshake ignores the context, and continues
// in the background after a timeout.
func secure(dialer *net.Dialer, config *tls.Config, host string) connect {
	c := &tls.Config{}
	if config != nil {
		c = config.Clone()
	}
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
	if c.ServerName == "" {
		c.ServerName = host
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialer.Timeout) // for both steps
		defer cancel()
		raw, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, c)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // nothing was sent on it
			return nil, advised(err)
		}
		return conn, nil
	}
}

// suspects returns the error of the first use of a connection, with advice if the server seems to want TLS, or a
// client's certificate. A TLS port closes the connection when it receives anything but TLS; some servers send an
// alert first. With TLS 1.3, a server checks the certificate after the handshake.
func suspects(first []byte, err error, tls bool) error {
	of, network := errors.AsType[net.Error](err)
	switch {
	case !tls && len(first) > 0 && first[0] == recordAlert:
		return errors.New("the server speaks TLS; try rediss://")
	case len(first) > 0 || err == nil || errors.Is(err, net.ErrClosed) || network && of.Timeout():
		return err
	case tls:
		return &adviceError{err, refused} // the reason may have been lost with the connection
	}
	return fmt.Errorf("%w (the server closed the connection without a reply; if it wants TLS, try rediss://)", err)
}

// recordAlert is the first byte of a TLS alert. No reply of Redis begins with it.
const recordAlert = 21

const refused = "the server refused this client; if it requires a certificate, set TLSConfig.Certificates in the options"

// advised adds advice to the error of a handshake.
func advised(err error) error {
	unknown, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	name, isName := errors.AsType[x509.HostnameError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	remote, isRemote := errors.AsType[*net.OpError](err)
	switch {
	case isUnknown && unknown.Cert != nil:
		return &adviceError{err, "the server's certificate isn't signed by a trusted authority; set TLSConfig.RootCAs in the options"}
	case isName && name.Certificate != nil:
		return &adviceError{err, "the certificate of the server is for another host; connect by that host's name, or set TLSConfig.ServerName in the options"}
	case isRecord, errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded):
		return &adviceError{err, "the server doesn't speak TLS on this port, or didn't answer; if it doesn't use TLS, try redis://"}
	case isRemote && remote.Op == "remote error":
		return &adviceError{err, refused}
	}
	return &adviceError{err, ""}
}

// An adviceError contains advice, if there is any.
type adviceError struct {
	err    error
	advice string
}

func (e *adviceError) Error() string {
	said := strings.TrimPrefix(strings.TrimPrefix(e.err.Error(), "remote error: "), "tls: ")
	if e.advice == "" {
		return "TLS: " + said
	}
	return "TLS: " + said + " (" + e.advice + ")"
}

func (e *adviceError) Unwrap() error { return e.err }
