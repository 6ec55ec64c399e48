package main

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A node is a map, list or value of a YAML document.
type node = any

// dig returns the value under a path of names; nil if there is none.
func dig(n node, path ...string) node {
	for _, name := range path {
		in, _ := n.(map[string]any)
		n = in[name]
	}
	return n
}

// walk calls do for each map in a document.
func walk(n node, do func(map[string]any)) {
	switch n := n.(type) {
	case map[string]any:
		do(n)
		for _, v := range n {
			walk(v, do)
		}
	case []any:
		for _, v := range n {
			walk(v, do)
		}
	}
}

// parsed returns all documents of deploy, by file.
func parsed(t testing.TB) map[string][]node {
	t.Helper()
	all := map[string][]node{}
	for _, file := range redistest.Sure(filepath.Glob(deploy + "*/*.yml"))(t) {
		for decoder := yaml.NewDecoder(strings.NewReader(read(t, file))); ; {
			var n node
			err := decoder.Decode(&n)
			if err == io.EOF {
				break
			}
			peertest.Must(t, err)
			all[file] = append(all[file], n)
		}
	}
	return all
}

// versioned matches an image with a version, whether or not a variable can replace it.
var versioned = regexp.MustCompile(`^(?:\$\{[A-Z_]+:-)?[a-z0-9/_-]+:v?[0-9]+(?:\.[0-9]+)+(?:@sha256:[0-9a-f]{64})?\}?$`)

// Each image in deploy has a version, so that a restart doesn't change what runs.
func TestImagesHaveVersions(t *testing.T) {
	t.Parallel()
	images := 0
	check := func(file, image string) {
		images++
		if !versioned.MatchString(image) {
			t.Errorf("%s: the image %s has no version", file, image)
		}
	}
	for file, documents := range parsed(t) {
		walk(documents, func(in map[string]any) {
			if image, ok := in["image"].(string); ok {
				check(file, image)
			}
		})
	}
	for _, file := range redistest.Sure(filepath.Glob(deploy + "*/Dockerfile"))(t) {
		for _, m := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(read(t, file), -1) {
			if m[1] != "scratch" {
				check(file, m[1])
			}
		}
	}
	if images < 15 {
		t.Errorf("only %d images found", images)
	}
}

// restricted returns what the level "restricted" of Kubernetes' Pod Security Standards refuses in a pod, and what
// this project requires in addition.
func restricted(pod node) (broken []string) {
	rule := func(met bool, text string) {
		if !met {
			broken = append(broken, text)
		}
	}
	rule(dig(pod, "automountServiceAccountToken") == false, "the token of the service account is mounted")
	for _, name := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		rule(dig(pod, name) == nil, name)
	}
	volumes, _ := dig(pod, "volumes").([]any)
	for _, v := range volumes {
		rule(dig(v, "hostPath") == nil, "a volume is a path of the host")
	}
	var containers []any
	for _, kind := range []string{"containers", "initContainers", "ephemeralContainers"} {
		some, _ := dig(pod, kind).([]any)
		containers = append(containers, some...)
	}
	for _, c := range containers {
		setting := func(path ...string) node { // the container's, or else the pod's
			if v := dig(c, append([]string{"securityContext"}, path...)...); v != nil {
				return v
			}
			return dig(pod, append([]string{"securityContext"}, path...)...)
		}
		own := func(path ...string) node { return dig(c, append([]string{"securityContext"}, path...)...) }
		rule(setting("seccompProfile", "type") == "RuntimeDefault", "no seccompProfile")
		rule(setting("runAsNonRoot") == true, "it may run as root")
		rule(setting("runAsUser") != 0, "it runs as root")
		rule(own("allowPrivilegeEscalation") == false, "allowPrivilegeEscalation")
		rule(own("readOnlyRootFilesystem") == true, "its file system isn't read-only")
		rule(own("privileged") == nil, "privileged")
		drop, _ := own("capabilities", "drop").([]any)
		rule(len(drop) == 1 && drop[0] == "ALL" && own("capabilities", "add") == nil, "capabilities")
		ports, _ := dig(c, "ports").([]any)
		for _, p := range ports {
			rule(dig(p, "hostPort") == nil, "hostPort")
		}
	}
	return broken
}

// A namespace with the level "restricted" accepts the pods.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	pods := 0
	for file, documents := range parsed(t) {
		walk(documents, func(in map[string]any) {
			if in["containers"] == nil {
				return
			}
			pods++
			for _, b := range restricted(in) {
				t.Errorf("%s: %s", file, b)
			}
		})
	}
	if pods == 0 {
		t.Error("no pod found")
	}
}

// secret matches the value of a password that must be set where the file is used.
var secret = regexp.MustCompile(`^\$\{[A-Z_]+:\?.+\}$`)

// No file contains a password of a program with a login, and none relies on the program's default.
func TestNoDefaultLogins(t *testing.T) {
	t.Parallel()
	required := map[string]string{"grafana": "GF_SECURITY_ADMIN_PASSWORD"}
	found := 0
	for file, documents := range parsed(t) {
		for _, d := range documents {
			services, _ := dig(d, "services").(map[string]any)
			for name, s := range services {
				env, _ := dig(s, "environment").(map[string]any)
				for variable, value := range env {
					if strings.Contains(variable, "PASSWORD") && !secret.MatchString(value.(string)) {
						t.Errorf("%s: %s is in the file", file, variable)
					}
				}
				if strings.Contains(fmt.Sprint(dig(s, "command")), "/etc/worqr/") && env["PASSWORD"] == nil {
					t.Errorf("%s: %s has the password of the files in deploy", file, name)
				}
				for image, variable := range required {
					if text, _ := dig(s, "image").(string); strings.Contains(text, image) {
						if found++; env[variable] == nil {
							t.Errorf("%s: %s has its default password: set %s", file, name, variable)
						}
					}
				}
			}
		}
		walk(documents, func(in map[string]any) { // of a container
			name, _ := in["name"].(string)
			if regexp.MustCompile(`PASSWORD|REDIS_URL`).MatchString(name) && dig(in, "valueFrom", "secretKeyRef") == nil {
				t.Errorf("%s: %s isn't from a secret", file, name)
			}
		})
	}
	if found == 0 {
		t.Error("no program with a login found")
	}
}
