package dash

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"sync"
	"time"
)

//go:embed static templates
var files embed.FS

// An asset is a file that never changes while the program runs.
type asset struct {
	kind    string // its media type: not every system knows them
	text    []byte
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
		all[e.Name()] = &asset{kinds[path.Ext(e.Name())], text, hex.EncodeToString(sum[:6])}
	}
	return all
})

// versioned returns the link to an asset. It changes with the asset, so that browsers may cache it.
func versioned(name string) string { return name + "?v=" + assets()[name].version }

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("ETag", `"`+a.version+`"`)
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.text))
}
