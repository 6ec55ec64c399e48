package redisconn

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A URL contains the servers' addresses and the logins.
type URL struct {
	Kind      Kind
	Secure    bool     // with TLS
	Network   string   // "tcp" or "unix"
	Addresses []string // host:port of each host, or the path of a socket
	Master    string   // the sentinels' name for it
	DB        int
	Login     Login // for the Redis servers
	Sentinel  Login // for the sentinels
}

// A Kind is how to find the server that has a key.
type Kind int

// The kinds: a single server, a master that sentinels know, or a cluster.
const (
	Single Kind = iota
	Sentinel
	Cluster
)

// A Login is a user and a password. The user "" is the default one.
type Login struct{ User, Password string }

// Given reports whether the login has a user or a password.
func (l Login) Given() bool { return l != Login{} }

func (l Login) user() string { return cmp.Or(l.User, "default") }

// escapes explains how to write characters with a special meaning in a URL.
const escapes = "write @ : / ? # % as %40 %3A %2F %3F %23 %25"

// The errors of a URL. Each names the part, and what to write there. It never quotes the URL: if a
// password isn't escaped, a piece of it ends up in another part.
var (
	errEmpty    = errors.New("the URL is empty; write redis://localhost:6379")
	errSpace    = errors.New("the URL begins or ends with white space; remove it")
	errOneHost  = errors.New("a redis:// URL takes one host; for several, use redis+cluster:// or redis+sentinel://")
	errScheme   = errors.New("the URL doesn't begin with redis://; write redis://localhost:6379; docs/options.md lists the other forms, such as redis+cluster://")
	errLogin    = errors.New("a part of the user or the password, or of a path, isn't escaped; " + escapes)
	errFragment = errors.New("the URL has an unescaped # or a fragment; write %23 for a #")
	errHost     = errors.New("the host is invalid; write host or host:port, with user and password as user:password@host")
	errColons   = errors.New("the host or the port has too many colons; put an IPv6 address in brackets, as in [::1]:6379")
	errPort     = errors.New("the port isn't a number from 1 to 65535")
	errDatabase = errors.New("the database isn't a number, 0 or higher")
	errQuery    = errors.New("the URL has a query; put the database in the path, as in redis://localhost:6379/2")
	errSocket   = errors.New("the path of the socket doesn't begin with the third slash of unix:///, or isn't escaped; " + escapes)
	errDB       = errors.New("the query must be ?db= and the number of the database, as in unix:///path?db=2")
	errNoHost   = errors.New("a host is missing; write host or host:port")
	errMaster   = errors.New("the name of the master is missing, or not escaped; write redis+sentinel://host:26379/master")
	errSlots    = errors.New("a cluster has no databases, but the URL has a path or a query; write redis+cluster://host:6379")
	errPoolURL  = errors.New("the dial function of the pool can't parse its URL; write redis://localhost:6379")
	errWatchers = errors.New("the query must be ?sentinel= and the user and the password for the sentinels, as in ?sentinel=user:password")
)

// A scheme is what the scheme of a URL stands for.
type scheme struct {
	kind   Kind
	secure bool
	port   string
}

var schemes = map[string]scheme{
	"redis": {Single, false, "6379"}, "rediss": {Single, true, "6379"}, "unix": {},
	"redis+sentinel": {Sentinel, false, "26379"}, "rediss+sentinel": {Sentinel, true, "26379"},
	"redis+cluster": {Cluster, false, "6379"}, "rediss+cluster": {Cluster, true, "6379"},
}

// ParseURL parses a URL. Its errors never quote it. It rejects URLs that it doesn't
// understand, and those in which an unescaped password may be in another part: that part would be
// dialed and appear in the error.
func ParseURL(raw string) (URL, error) {
	if raw == "" {
		return URL{}, errEmpty
	}
	name, authority := pieces(raw)
	of, known := schemes[name]
	login, hosts, named := strings.Cut(authority, "@")
	if !named {
		login, hosts = "", authority
	}
	who, err := url.Parse("//" + login + "@")
	switch {
	case strings.TrimSpace(raw) != raw:
		return URL{}, errSpace
	case !known:
		return URL{}, errScheme
	case strings.Count(raw, "@") > 1, strings.Contains(raw, "@") && !named, err != nil:
		return URL{}, errLogin
	case strings.Contains(raw, "#"):
		return URL{}, errFragment
	}
	u := URL{Kind: of.kind, Secure: of.secure, Network: "tcp", Login: loginOf(who.User)}
	switch {
	case name == "unix":
		err = u.parseSocket(raw, hosts)
	case of.kind == Single:
		err = u.parseOne(raw, hosts, of.port)
	default:
		_, rest, _ := strings.Cut(raw, "://")
		err = u.parseMany(hosts, rest[len(authority):], of.port)
	}
	if err != nil {
		return URL{}, err
	}
	return u, nil
}

// address checks a host with or without a port, and returns it with one.
func address(host, port string) (string, error) {
	_, rest, _ := strings.Cut(host, ":")
	u, err := url.Parse("//" + host)
	switch {
	case strings.Contains(host, ","):
		return "", errOneHost
	case !strings.HasPrefix(host, "[") && strings.Contains(rest, ":"):
		return "", errColons
	case err != nil:
		if i := strings.LastIndex(host, ":"); i >= 0 {
			if _, err := url.Parse("//" + host[:i]); err == nil {
				return "", errPort
			}
		}
		return "", errHost
	}
	port = cmp.Or(u.Port(), port)
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", errPort
	}
	return net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), port), nil
}

// database parses a database number; "" is 0.
func database(text string) (int, error) {
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil || n < 0 {
		return 0, errDatabase
	}
	return n, nil
}

// parseSocket parses the path of a socket, and its query.
func (u *URL) parseSocket(raw, host string) error {
	p, err := url.Parse(raw)
	switch {
	case err != nil || host != "" || p.Path == "":
		return errSocket
	case p.RawQuery != "" && !strings.HasPrefix(p.RawQuery, "db="):
		return errDB
	}
	u.Network, u.Addresses = "unix", []string{p.Path}
	u.DB, err = database(strings.TrimPrefix(p.RawQuery, "db="))
	return err
}

// parseOne parses the host of a single server, and the database.
func (u *URL) parseOne(raw, host, port string) error {
	at, err := address(host, port)
	if err != nil {
		return err
	}
	p, err := url.Parse(raw)
	switch {
	case err != nil:
		return errDatabase
	case strings.Contains(raw, "?"):
		return errQuery
	}
	u.Addresses = []string{at}
	u.DB, err = database(strings.Trim(p.Path, "/"))
	return err
}

// parseMany parses several hosts, and what follows them. net/url supports only one.
func (u *URL) parseMany(hosts, rest, port string) error {
	for i, host := range strings.Split(hosts, ",") {
		at, err := address(host, port)
		if host == "" || strings.HasPrefix(host, ":") {
			err = errNoHost
		}
		if err != nil {
			return fmt.Errorf("host %d: %w", i+1, err)
		}
		u.Addresses = append(u.Addresses, at)
	}
	path, query, asks := strings.Cut(rest, "?")
	if u.Kind == Sentinel {
		return u.watched(path, query, asks)
	}
	if strings.Trim(path, "/") != "" || asks {
		return errSlots
	}
	return nil
}

// unnamable reports whether a character isn't allowed in a name.
func unnamable(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) }

// watched parses the parts of a URL about a master and its sentinels.
func (u *URL) watched(path, query string, asks bool) (err error) {
	master, db, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if u.Master, err = url.PathUnescape(master); err != nil || strings.Contains(master, ":") || u.Master == "" || strings.ContainsFunc(u.Master, unnamable) {
		return errMaster
	}
	if u.DB, err = database(strings.TrimSuffix(db, "/")); err != nil || !asks {
		return err
	}
	login, ok := strings.CutPrefix(query, "sentinel=")
	if !ok || login == "" || strings.ContainsAny(login, "&/?") {
		return errWatchers
	}
	who, err := url.Parse("//" + login + "@")
	if err != nil {
		return errWatchers
	}
	u.Sentinel = loginOf(who.User)
	return nil
}

// Address returns the address in human-readable form, without user and password.
func (u URL) Address() string {
	at := strings.Join(u.Addresses, ",")
	if u.Master != "" {
		at += "/" + u.Master
	}
	return at
}

// pieces splits a URL into its scheme ("" if it's unknown) and what comes between the scheme and
// the path: user, password, hosts and ports.
func pieces(raw string) (scheme, authority string) {
	scheme, rest, _ := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	_, known := schemes[scheme]
	many := known && schemes[scheme].kind != Single
	if !known || !strings.HasPrefix(rest, "/") || many && !strings.HasPrefix(rest, "//") {
		return "", ""
	}
	if rest, ok := strings.CutPrefix(rest, "//"); ok {
		authority = rest[:strings.IndexAny(rest+"/", "/?#")]
	}
	return scheme, authority
}

// loginOf returns the login. A name alone is a password, as in redis-cli.
func loginOf(user *url.Userinfo) Login {
	if user == nil {
		return Login{}
	}
	if password, two := user.Password(); two {
		return Login{user.Username(), password}
	}
	return Login{"", user.Username()}
}
