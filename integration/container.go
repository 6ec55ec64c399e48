// Package integration runs the library against a Redis in a container.
package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"

	"github.com/worqr/worqr"
)

// Environment variables.
const (
	// ImageEnv names the image of the container, which must have redis-server in its PATH. The
	// default is the official image, which is pulled if it's missing.
	ImageEnv = "WORQR_TEST_IMAGE"
	// If RequireEnv is 1, the tests fail without Docker.
	RequireEnv = "WORQR_REQUIRE_DOCKER"

	officialImage = "redis:7"
)

// ErrNoDocker says that there is no Docker engine, or that the engine can't get the image.
var ErrNoDocker = errors.New("can't start a Redis container: install Docker and start it, or set DOCKER_HOST; for another image set " + ImageEnv)

// Container is a running Redis.
type Container struct {
	URL string

	pool     *dockertest.Pool
	resource *dockertest.Resource
}

// Start starts a container and waits until its Redis answers. Docker ends the
// container after the given time if Remove has not been called.
func Start(life time.Duration) (*Container, error) {
	pool, err := dockertest.NewPool(endpoint())
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoDocker, err)
	}
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoDocker, err)
	}
	repository, tag := split(cmp.Or(os.Getenv(ImageEnv), officialImage))
	if _, err := pool.Client.InspectImage(repository + ":" + tag); err != nil {
		err := pool.Client.PullImage(docker.PullImageOptions{Repository: repository, Tag: tag}, docker.AuthConfiguration{})
		if err != nil {
			return nil, fmt.Errorf("%w (image %s:%s: %w)", ErrNoDocker, repository, tag, err)
		}
	}
	const port = "6379/tcp"
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository:   repository,
		Tag:          tag,
		Cmd:          []string{"redis-server", "--save", "", "--protected-mode", "no"},
		ExposedPorts: []string{port}, // the image may not expose it
		PortBindings: map[docker.Port][]docker.PortBinding{port: {{HostIP: "127.0.0.1"}}},
	}, func(c *docker.HostConfig) { c.AutoRemove = true })
	if err != nil {
		return nil, fmt.Errorf("container of %s:%s: %w", repository, tag, err)
	}
	c := &Container{URL: "redis://" + resource.GetHostPort(port), pool: pool, resource: resource}
	_ = resource.Expire(uint(life / time.Second)) // never fails
	if err := pool.Retry(c.ping); err != nil {
		return nil, errors.Join(fmt.Errorf("the Redis in the container does not answer: %w", err), c.Remove())
	}
	return c, nil
}

func (c *Container) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p, err := worqr.Open(c.URL, nil)
	if err != nil {
		return err
	}
	_, err = p.Queue("ping").Stats(ctx)
	return errors.Join(err, p.Close())
}

// Remove stops and removes the container.
func (c *Container) Remove() error { return c.pool.Purge(c.resource) }

// split splits the name of an image from its tag.
func split(image string) (repository, tag string) {
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}

// endpoint returns the address of the engine that the docker command uses, which dockertest can't
// find by itself; "" means the default.
func endpoint() string {
	if os.Getenv("DOCKER_HOST") != "" {
		return ""
	}
	out, err := exec.Command("docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
