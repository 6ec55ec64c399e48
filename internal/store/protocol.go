package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Protocol is the version that a peer or a fleet speaks.
type Protocol struct {
	Newest int // the version that it speaks
	Oldest int // the oldest version that other peers may speak
}

// Ours is this library's protocol. Newest rises when scripts or keys change in a way that older
// peers can notice. Oldest follows in a later release, so that the release in between works with
// both. 2 was made anew, and works with none before it: 1, and 0, from before versions were numbered.
var Ours = Protocol{Newest: 2, Oldest: 2}

// ErrProtocol says that a peer can't work with the running peers.
var ErrProtocol = errors.New("the peers of this fleet speak another protocol")

// Beside returns why a peer can't work in a fleet with this protocol; nil if it can.
func (p Protocol) Beside(fleet Protocol) error {
	switch {
	case p.Newest < fleet.Oldest:
		return fmt.Errorf("%w: they speak protocol %d and need every peer to speak %d or later, but this program speaks %d; upgrade this program",
			ErrProtocol, fleet.Newest, fleet.Oldest, p.Newest)
	case fleet.Newest < p.Oldest:
		return fmt.Errorf("%w: they speak protocol %d, and this program works with %d or later; see \"To upgrade\" in the changelog",
			ErrProtocol, fleet.Newest, p.Oldest)
	}
	return nil
}

// beside returns why a peer can't work with a registered one; nil if it can.
func (p Protocol) beside(w Worker) error {
	if w.Protocol >= p.Oldest {
		return nil
	}
	return fmt.Errorf("%w: worker %s (%.*q) speaks protocol %d, and this program works with %d or later; see \"To upgrade\" in the changelog",
		ErrProtocol, w.ID, MaxName, w.Name, w.Protocol, p.Oldest)
}

// Agree raises the protocol of the fleet to that of a peer. It fails with ErrProtocol if the peer
// can't work beside current or earlier peers. It may be repeated.
//
// If the peer would be the first that can't work beside older ones, it looks for them on the roster
// before it raises the protocol. So a peer that was started by mistake doesn't stop an old fleet.
func Agree(ctx context.Context, r Runner, s keys.Space, ours Protocol) error {
	spoken, known, err := Spoken(ctx, r, s)
	switch {
	case err != nil:
		return err
	case known && ours.Beside(spoken) != nil:
		return ours.Beside(spoken)
	case known && ours.Newest <= spoken.Newest && ours.Oldest <= spoken.Oldest:
		return nil
	case ours.Oldest > spoken.Oldest:
		for w, err := range Workers(ctx, r, s) {
			if err != nil {
				return err
			}
			if err := ours.beside(w); err != nil {
				return err
			}
		}
	}
	text, err := redis.String(r.One(ctx, agree.fleetCall(s, []string{s.Protocol()}, ours.Newest, ours.Oldest)))
	if err != nil {
		return err
	}
	spoken, _ = parseProtocol(text)
	return ours.Beside(spoken)
}

// Spoken reads the fleet's protocol, if it's known.
func Spoken(ctx context.Context, r Runner, s keys.Space) (p Protocol, known bool, err error) {
	text, err := redis.String(r.One(ctx, redisconn.Command("GETRANGE", s.Protocol(), 0, longestProtocol)))
	p, known = parseProtocol(text)
	return p, known, err
}

const longestProtocol = len("1234:1234") // bytes; GETRANGE brings one more, which is too long

func parseProtocol(text string) (p Protocol, ok bool) {
	newest, oldest, ok := strings.Cut(text, ":")
	if !ok || len(text) > longestProtocol {
		return Protocol{}, false
	}
	var errs [2]error
	p.Newest, errs[0] = strconv.Atoi(newest)
	p.Oldest, errs[1] = strconv.Atoi(oldest)
	if errs[0] != nil || errs[1] != nil || p.Newest < 0 || p.Oldest < 0 {
		return Protocol{}, false
	}
	return p, true
}
