package spec

// gone: a named task has ended. What waits behind it takes its place.
func (q *Queue) gone(n *notice, name string) {
	q.Runs.Delete(name)
	if isRaw(name) {
		q.Copies.Remove(name)
		q.Crashes.Delete(digestIn(name))
	} else if b := q.behind(name); b != nil {
		q.Next.Delete(name)
		q.Tasks.Put(name, b.Record)
		q.plan(n, name, b.At)
		return
	}
	q.Tasks.Delete(name)
}

// comesBack: a named task waits again, until a time, or, if that's 0, at a place. If a task waits behind it, that one's
// rules judge between the two.
func (q *Queue) comesBack(n *notice, name string, r Run, at, place int64) {
	r.Attempt = ""
	wanted := at
	if b := q.behind(name); b != nil {
		q.Next.Delete(name)
		wanted = b.ruled(at)
		if !b.Keep {
			q.Tasks.Put(name, b.Record)
		}
		if !b.Counts {
			r = Run{}
		}
	}
	q.setRun(name, r)
	if at == 0 && wanted == 0 {
		q.makeReady(n, name, place) // it keeps its time, and so its place
	} else {
		q.plan(n, name, wanted)
	}
}

// canceled reports whether an attempt must not be followed by another: its token in working says so, or a cancel of
// its digest that's not older.
func (q *Queue) canceled(token int64, digest string) bool {
	last, is := q.Canceled.Get(digest)
	return token < 0 || is && digest != "" && number(last) >= token
}
