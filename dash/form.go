package dash

import (
	"io"
	"net/http"
	"net/url"
	"strings"
)

// mostPosted limits what a browser may send.
const mostPosted = 1 << 20

// form parses a posted form. It refuses requests from other sites, and other content types.
func (d *dashboard) form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	if err := d.cross.Check(r); err != nil {
		d.refuse(w, http.StatusForbidden, "This request comes from another site, or through a proxy that changes the host. To allow it, set Options.CrossOrigin.")
		return nil, false
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostPosted))
	if err != nil {
		d.refuse(w, http.StatusRequestEntityTooLarge, "The request is too large: a payload may have up to 1 MiB here.")
		return nil, false
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		d.refuse(w, http.StatusBadRequest, "The request isn't a form.")
		return nil, false
	}
	for _, values := range form {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], "\r\n", "\n") // as typed: browsers change it
		}
	}
	if key, err := url.QueryUnescape(form.Get("escaped")); err == nil && key != "" { // of a task, byte for byte
		form.Set("key", key)
	}
	return form, true
}
