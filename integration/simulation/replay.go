package simulation

import (
	"io"
	"time"
)

// Replay carries out the requests of a record on a server of its own, at their
// times and in their order, and returns what is wrong with what they do. It knows
// nothing of processes, so it does not judge whether those who were failed lived.
// The scripts are those of the record; rewrite, if set, changes them.
func Replay(from io.Reader, rewrite func(script string) string) ([]string, error) {
	began := time.Now()
	at := time.Duration(0)
	s, err := newServer(func() time.Time { return began.Add(at) })
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.scripts.rewrite = rewrite
	j := newJudge(s)
	var before snapshot
	err = readRecord(from, func(it item) error {
		at = it.at
		switch it.mark {
		case '@', '+':
			j.request(it.args, nil, it.mark == '+')
		case '!':
			switch it.who {
			case "began":
				us, err := time.ParseDuration(it.text)
				if err != nil {
					return err
				}
				began = time.UnixMicro(0).Add(us)
			case "clock":
				s.jumped, err = time.ParseDuration(it.text)
				return err
			case "flush":
				clear(s.scripts.programs)
			case "readonly":
				s.readonly = it.text == "1"
			case "full":
				s.full = it.text == "1"
			case "loading":
				s.loading = it.text == "1"
			case "snapshot":
				before = s.snapshot()
			case "restore", "wipe":
				if it.who == "wipe" {
					before = snapshot{}
				}
				s.restore(before)
				j.restored(before)
			}
		}
		return nil
	})
	return j.wrong, err
}
