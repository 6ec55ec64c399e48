package dash

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static templates
var files embed.FS

// An asset is a file that never changes while the program runs.
type asset struct {
	kind    string // its media type
	plain   []byte
	zipped  []byte
	version string
}

var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// assets reads the files of static, by name.
var assets = sync.OnceValue(func() map[string]*asset {
	all := map[string]*asset{}
	entries, _ := files.ReadDir("static") // it's embedded
	for _, e := range entries {
		text, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err) // it's embedded
		}
		sum := sha256.Sum256(text)
		all[e.Name()] = &asset{kind: kinds[path.Ext(e.Name())], plain: text, zipped: zip(text), version: hex.EncodeToString(sum[:6])}
	}
	return all
})

// versioned returns the link to an asset. It changes with the asset, so that browsers may cache it.
func versioned(name string) string { return name + "?v=" + assets()[name].version }

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("ETag", `"`+a.version+`"`)
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == `"`+a.version+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	send(w, r, http.StatusOK, a.plain, func() []byte { return a.zipped })
}

// send writes a body, compressed if the browser accepts that.
func send(w http.ResponseWriter, r *http.Request, status int, plain []byte, zipped func() []byte) {
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		plain = zipped()
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(plain) // a client that has gone needs no answer
	}
}

func zip(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // to memory
	_ = z.Close()
	return b.Bytes()
}
