package spec

import (
	"fmt"
	"regexp"
	"strings"
)

var sized = regexp.MustCompile(`^[#+]([0-9]+:[0-9a-fA-F]+):?`)

// announce publishes finished tasks to observers, until a message reaches none.
func (r *round) announce(payload, large, word string) {
	if !r.publishing {
		return
	}
	message := `{"workerId":` + quote(r.worker) + r.about("task", payload, large)
	if m := sized.FindStringSubmatch(word); m != nil {
		if word[0] == '+' && r.Listening(r.doneTo) > 0 {
			message += `,"result":` + word[len(m[0]):]
		} else {
			message += r.about("result", "", m[1])
		}
	} else if result, ok := strings.CutPrefix(word, "="); ok {
		message += r.about("result", result, "")
	}
	r.publishing = r.Publish(r.doneTo, message+"}") > 0
	r.observed = r.publishing
}

// about returns how an event shows a payload or a result: the text, or its length and digest. large
// holds the length and the digest, if the caller has them. Otherwise a long text is shown by its
// length alone, since a digest would take too long.
func (r *round) about(name, value, large string) string {
	size, sum, _ := strings.Cut(large, ":")
	switch {
	case large != "":
	case len(value) > 65536, len(value) > 1024 && (r.encoded >= 200000 || r.Listening(r.doneTo) == 0):
		return fmt.Sprintf(`,"%sSize":%d`, name, len(value))
	case r.encoded >= 200000:
		size, sum = text(int64(len(value))), digest(value)
	default:
		r.encoded += len(value)
		return `,"` + name + `":` + quote(value)
	}
	return fmt.Sprintf(`,"%sSize":%s,"%sDigest":"%s"`, name, size, name, sum)
}

// quote encodes a string of any bytes as JSON.
func quote(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}
