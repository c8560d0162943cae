"""Decides whether the histories of a store's workers have kept its clock. It knows docs/stores.md ("Clocks", "Histories"), and nothing of the code."""
import collections


def staleness_of(clock):
    """How many pushes of each other worker a read may miss; None: any number."""
    if clock == "async":
        return None
    return 0 if clock == "bsp" else int(clock[len("ssp:"):])


def wrong_counts(event, made, before, total, staleness):
    """What is wrong with `seen` of a read. `before`: of the read before it; `total`: what each worker has pushed in all."""
    seen, worker = event["seen"], event["worker"]
    if len(seen) != len(total):
        yield "another number of workers"
        return
    for other, count in enumerate(seen):
        if count < before[other]:
            yield "a push is gone"
        if event.get("cached") and other != worker and count != before[other]:
            yield "not what was pulled"
        if count > total[other]:
            yield "a push that nobody made"
        if other == worker and count > made:
            yield "an own push before it was made"
        if other == worker and count < made:
            yield "an own push is missing"
        if other != worker and staleness is not None and count < made - staleness:
            yield "too stale"
        if other != worker and staleness == 0 and count > made:
            yield "too new"


def have_an_order(all_seen):
    """True if pulls of a range may have been answered one after the other, while its owner took pushes."""
    in_order = sorted(all_seen, key=sum)
    return all(a <= b for first, second in zip(in_order, in_order[1:]) for a, b in zip(first, second))


def objections(histories, clock):
    """What is wrong with the histories of all workers if they have kept this clock."""
    pushes = collections.Counter((event["worker"], *event["keys"]) for events in histories for event in events if event["op"] == "push")
    pulled = collections.defaultdict(list)
    found = []
    for worker, events in enumerate(histories):
        made = collections.Counter()
        before = collections.defaultdict(lambda: [0] * len(histories))  # what the last read of these keys has seen
        for event in events:
            keys = tuple(event["keys"])
            made[keys] += event["op"] == "push"
            wrong = []
            if event["worker"] != worker:
                wrong.append("another worker's line")
            if event["clock"] != made[keys]:
                wrong.append("the clock does not count pushes")
            if event["op"] == "read":
                total = [pushes[(other, *keys)] for other in range(len(histories))]
                cached = event.get("cached", False)
                wrong += ["nothing was pulled"] if cached and keys not in before else []
                wrong += wrong_counts(event, made[keys], before[keys], total, staleness_of(clock))
                before[keys] = event["seen"]
                if not cached:  # the others' pushes are those of a pull; its own may not have come to the owner
                    pulled[keys].append(event["seen"])
            found += [(what, event) for what in wrong]
    return found + [("reads without an order", keys) for keys, all_seen in pulled.items() if not have_an_order(all_seen)]
