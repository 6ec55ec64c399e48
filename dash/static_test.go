package dash

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Text has a contrast of at least 4.5 to its background, light and dark, as WCAG AA requires, and edges of
// controls have 3.
func TestContrast(t *testing.T) {
	t.Parallel()
	css := string(assets()["style.css"].plain)
	blocks := regexp.MustCompile(`(?s)color-scheme: (light|dark);(.*?)\}`).FindAllStringSubmatch(css, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d palettes", len(blocks))
	}
	if strings.TrimSpace(blocks[1][2]) != strings.TrimSpace(blocks[2][2]) {
		t.Error("the dark palette differs between the system's choice and the user's")
	}
	for _, b := range blocks {
		colors := map[string]string{}
		for _, c := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6})`).FindAllStringSubmatch(b[2], -1) {
			colors[c[1]] = c[2]
		}
		check := func(text, behind string, least float64) {
			if got := contrast(t, colors[text], colors[behind]); got < least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", b[1], text, behind, got, least)
			}
		}
		for _, behind := range []string{"paper", "sheet"} {
			for _, text := range []string{"ink", "soft", "faint", "accent", "good", "warn", "bad", "note", "second"} {
				check(text, behind, 4.5)
			}
		}
		check("edge", "paper", 3)
		for _, kind := range []string{"good", "warn", "bad", "note"} {
			check(kind, kind+"-bg", 4.5)
			check("ink", kind+"-bg", 4.5)
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, color string) (sum float64) {
	t.Helper()
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(color[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(fmt.Errorf("%q: %w", color, err))
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
