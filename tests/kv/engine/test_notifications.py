"""Keyspace notifications: the events of every command, as observed on real servers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.errors import CommandError

from ..backing import eventually
from ..conftest import Run
from ..scenarios import alternatives

# One session's commands in order, each with its events: those of Redis 7.0, and for field expiry
# those of Valkey 9.1. Alternatives in braces are commands with the same events.
STOCK = """\
set a 1 => a:new a:set
set a 2 => a:set
set a 2 EX 100 => a:set a:expire
set a 3 KEEPTTL => a:set
set b x NX => b:new b:set
set b x NX =>
setnx c 1 => c:new c:set
setnx c 1 =>
setex d 10 v => d:new d:set d:expire
psetex d 1000 v => d:set d:expire
getset d 2 => d:set
getset e 2 => e:keymiss e:new e:set
getex d EX 10 => d:expire
getex d PERSIST => d:persist
getex d =>
getex d EXAT 1 => d:del
{get|mget a|exists|ttl|type} nokey => nokey:keymiss
object encoding nokey =>
strlen nokey => nokey:keymiss
mset m1 1 m2 2 => m1:new m1:set m2:new m2:set
msetnx m1 1 m3 3 =>
msetnx m4 1 m3 3 => m4:new m4:set m3:new m3:set
incr n => n:new n:incrby
{decr n|incrby n 5|decrby n 2} => n:incrby
incrbyfloat n 1.5 => n:incrbyfloat
append n x => n:append
append new x => new:new new:append
setrange r 3 abc => r:new r:setrange
setrange r 0 zz => r:setrange
setrange r2 0 "" =>
setbit bits 7 1 => bits:new bits:setbit
setbit bits 7 1 =>
bitfield bits set u8 0 255 => bits:setbit
bitfield bits get u8 0 =>
bitfield bits get u8 0 incrby u8 0 1 => bits:setbit
bitop and dst bits r => dst:new dst:set
bitop and dst nokey => nokey:keymiss dst:del
{bitop not dst2|bitcount} nokey => nokey:keymiss
getdel a => a:del
getdel a => a:keymiss
del b nokey => b:del
unlink c => c:del
lpush l 1 2 3 => l:new l:lpush
rpush l 4 => l:rpush
lpushx l 0 => l:lpush
rpushx nol 1 =>
linsert l BEFORE 1 x => l:linsert
linsert l BEFORE nope x =>
lset l 0 y => l:lset
lrem l 0 x => l:lrem
lrem l 0 nope =>
ltrim l 0 {2|1} => l:ltrim
lpop l => l:lpop
rpop l => l:rpop l:del
lpop nol =>
rpush l a b c d => l:new l:rpush
lmove l l2 LEFT RIGHT => l2:new l2:rpush l:lpop
lmove l l LEFT RIGHT => l:rpush l:lpop
rpoplpush l l2 => l2:lpush l:rpop
lmpop 2 nol l LEFT COUNT 2 => l:lpop l:del
lmpop 1 l RIGHT COUNT 10 =>
lmove l2 l3 RIGHT LEFT => l3:new l3:lpush l2:rpop
lmove l2 l3 RIGHT LEFT => l3:lpush l2:rpop l2:del
ltrim l3 5 1 => l3:ltrim l3:del
rpush l a b => l:new l:rpush
lmove l l RIGHT LEFT => l:lpush l:rpop
lpop l 5 => l:lpop l:del
rpush sl 3 1 2 => sl:new sl:rpush
sort sl STORE sorted => sorted:new sorted:sortstore
sort nokey STORE sorted => nokey:keymiss sorted:del
sort nokey {STORE sorted|} => nokey:keymiss
sadd s a b c => s:new s:sadd
sadd s a =>
srem s a => s:srem
srem s zz =>
smove s s2 b => s:srem s2:new s2:sadd
smove s s2 zz =>
spop s => s:spop s:del
sadd s 1 2 => s:new s:sadd
spop s 5 => s:spop s:del
sadd s a b => s:new s:sadd
sadd t b c => t:new t:sadd
sinterstore x s t => x:new x:sinterstore
sunionstore x s t => x:sunionstore
sdiffstore x s t => x:sdiffstore
sinterstore x s nokey => nokey:keymiss x:del
sinter s nokey => nokey:keymiss
sunion nokey nokey2 => nokey:keymiss nokey2:keymiss
sdiffstore x nokey s => nokey:keymiss
hset h a 1 => h:new h:hset
{hset h a 1|hmset h b 2} => h:hset
hsetnx h a 3 =>
hsetnx h c 3 => h:hset
hincrby h a 5 => h:hincrby
hincrbyfloat h a 1.5 => h:hincrbyfloat
hdel h a zz => h:hdel
{hdel|hget} h zz =>
hget nokey a => nokey:keymiss
hdel h b c => h:hdel h:del
zadd z 1 a 2 b => z:new z:zadd
zadd z 1 a =>
zadd z XX 5 a => z:zadd
zadd z NX 5 a =>
zadd z INCR 1 a => z:zincr
zadd z XX INCR 1 zz =>
zincrby z 2 a => z:zincr
zincrby z2 2 a => z2:new z2:zincr
zrem z zz =>
zrem z a => z:zrem
zadd z 1 a 3 c 4 d 5 e => z:zadd
zremrangebyscore z 3 3 => z:zremrangebyscore
zremrangebyrank z 0 0 => z:zremrangebyrank
zremrangebylex z - (b =>
zpopmin z => z:zpopmin
zpopmax z 5 => z:zpopmax z:del
zadd z 1 a 2 b 3 c => z:new z:zadd
zunionstore u 1 z => u:new u:zunionstore
zinterstore u 2 z nokey => nokey:keymiss u:del
zdiffstore u 1 z => u:new u:zdiffstore
zrangestore v z 0 -1 => v:new v:zrangestore
zrangestore v nokey 0 -1 => nokey:keymiss v:del
zmpop 1 z MIN => z:zpopmin
zmpop 1 z MAX COUNT 5 => z:zpopmax z:del
zscore nokey a => nokey:keymiss
geoadd g 13 38 p => g:new g:zadd
geoadd g 13 38 p =>
geoadd g CH 14 38 p => g:zadd
geosearchstore gs g FROMMEMBER p BYRADIUS 1 km => gs:new gs:geosearchstore
georadius g 14 38 1 km STORE gr => gr:new gr:georadiusstore
georadius g 0 0 1 km STORE gr => gr:del
geosearchstore gs nokey FROMLONLAT 1 1 BYRADIUS 1 km => nokey:keymiss gs:del
pfadd p a b => p:new p:pfadd
{pfadd p a b|pfcount p} =>
pfmerge q p => q:keymiss q:new q:pfadd
pfcount nokey => nokey:keymiss
pfadd pp => pp:new pp:pfadd
xadd st 1-1 a b => st:new st:xadd
xadd st 2-1 a b => st:xadd
xadd st MAXLEN 2 3-1 a b => st:xadd st:xtrim
xadd st MAXLEN 5 4-1 a b => st:xadd
xtrim st MAXLEN 1 => st:xtrim
{xtrim st MAXLEN 1|xdel st 9-9} =>
xsetid st 9-1 => st:xsetid
xgroup create st g $ => st:xgroup-create
xgroup create mk g $ MKSTREAM => mk:new mk:xgroup-create
xgroup createconsumer st g c => st:xgroup-createconsumer
xgroup createconsumer st g c =>
xgroup setid st g 0 => st:xgroup-setid
xreadgroup GROUP g c2 STREAMS st > => st:xgroup-createconsumer
{xreadgroup GROUP g c2 STREAMS st >|xack st g 4-1|xclaim st g c3 0 4-1|xautoclaim st g c4 0 0} =>
xgroup delconsumer st g c => st:xgroup-delconsumer
xgroup delconsumer st g zz =>
xgroup destroy st g => st:xgroup-destroy
xgroup destroy st g =>
xdel st 4-1 => st:xdel
xlen nokey => nokey:keymiss
expire s 100 => s:expire
expire {s 100 NX|nokey 1} =>
pexpire s 100000 => s:expire
expireat s 1 => s:del
expireat t 99999999999 => t:expire
persist t => t:persist
persist {t|nokey} =>
rename t t2 => t2:new t:rename_from t2:rename_to
set over 1 => over:new over:set
rename t2 over => over:new t2:rename_from over:rename_to
renamenx over o2 => o2:new over:rename_from o2:rename_to
rename nokey x =>
copy o2 o3 {|REPLACE} => o3:new o3:copy_to
copy nokey o3 => nokey:keymiss
move o3 1 => o3@1:new o3:move_from o3@1:move_to
move nokey 1 =>
{touch|dump} nokey => nokey:keymiss
eval "for _,c in ipairs({'incr','persist','get'}) do redis.call(c,'ev') end" 0 => ev:new ev:incrby
swapdb 0 1 =>
{swapdb 0 1|flushall|randomkey|keys *|scan 0} =>
{sort_ro nokey|lrange nokey 0 1} => nokey:keymiss
setrange new 5 x => new:new new:setrange
hrandfield nokey => nokey:keymiss
watch a =>
lcs nokey n2 => nokey:keymiss n2:keymiss
{object freq nokey|object idletime nokey|memory usage nokey|restore nokey 0 zz} =>
smembers nokey => nokey:keymiss
hsetnx nn f v => nn:new nn:hset
zadd nz INCR 1 m => nz:new nz:zincr
{lpos nokey a|zrank nokey a|xrange nokey - +} => nokey:keymiss
xread STREAMS nokey 0 => nokey:keymiss nokey:keymiss
{xinfo stream nokey|getrange nokey 0 1|bitpos nokey 1} => nokey:keymiss
setbit nb 0 0 => nb:new nb:setbit
xadd nost NOMKSTREAM * a b =>
{zinter 2 nz nokey|geopos nokey a} => nokey:keymiss
pexpire nn 0 => nn:del
set b 1 PX 1000 GET => b:keymiss b:new b:set b:expire
{linsert nokey BEFORE a b|lset nokey 0 a|xtrim nokey MAXLEN 1} =>
hgetall nokey => nokey:keymiss
{lrem nokey 0 a|ltrim nokey 0 1|spop nokey|srem nokey a|zrem nokey a|hdel nokey a} =>
{pttl nokey|expiretime nokey|sintercard 1 nokey|sismember nokey a} => nokey:keymiss
set wr 1 => wr:new wr:set
lpush wr 1 =>
sinterstore wr nokey a => nokey:keymiss a:keymiss wr:del
xgroup create wr2 g $ =>
"""
FIELDS = """\
hset h a 1 b 2 c 3 => h:new h:hset
hexpire h 100 FIELDS 1 a => h:hexpire
hexpire {h 100 NX|nokey 100} FIELDS 1 a =>
hpersist h FIELDS 1 a => h:hpersist
hpersist h FIELDS 1 a =>
hexpireat h 1 FIELDS 1 a => h:hexpired
hgetex h EX 100 FIELDS 1 b => h:hexpire
hgetex h PERSIST FIELDS 1 b => h:hpersist
hgetex h {PERSIST|} FIELDS 1 b =>
hsetex h EX 100 FIELDS 1 d 4 => h:hset h:hexpire
hsetex h FIELDS 1 d 4 => h:hset
hsetex h EXAT 1 FIELDS 1 e 4 => h:hset h:hexpire h:hexpired
hsetex hn EX 5 FIELDS 1 e 4 => hn:new hn:hset hn:hexpire
hgetdel h FIELDS 1 b => h:hdel
hgetdel h FIELDS 2 zz yy =>
hgetdel h FIELDS 2 c d => h:hdel h:del
hset h a 1 => h:new h:hset
hexpireat h 1 FIELDS 1 a => h:hexpired h:del
hset h a 1 => h:new h:hset
hgetex h EXAT 1 FIELDS 1 a => h:hexpired h:del
httl nokey FIELDS 1 a => nokey:keymiss
hpexpire hn 0 FIELDS 1 e => hn:hexpired hn:del
{hpexpire hn 0 FIELDS 1 zz|delifeq nokey a} =>
set a 1 => a:new a:set
delifeq a 2 =>
delifeq a 1 => a:del
msetex 2 a 1 b 2 EX 100 => a:new a:set a:expire b:new b:set b:expire
set c 1 IFEQ 2 =>
"""


class Listener:
    """Records events as ``key:event``, with ``@<db>`` after the key except for database 0."""

    def __init__(self, engine: Engine, pattern: bytes = b"__keyspace*") -> None:
        self.heard: list[str] = []
        session = engine.session()
        session.deliver = self.hear
        engine.pubsub.subscribe(session, "pattern", pattern)

    def hear(self, message: list[bytes]) -> None:
        if message[0] == b"pmessage":
            channel, event = message[2].decode(), message[3].decode()
            number, _, key = channel.partition("@")[2].partition("__:")
            self.heard.append(f"{key}{'' if number == '0' else '@' + number}:{event}")

    def take(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard


Listen = Callable[..., Listener]


@pytest.fixture
def listen(engine: Engine) -> Callable[..., Listener]:
    def begin(flags: str, pattern: bytes = b"__key*") -> Listener:
        command = ["CONFIG", "SET", "notify-keyspace-events", flags]
        engine.execute(engine.session(), [word.encode() for word in command])
        return Listener(engine, pattern)

    return begin


@pytest.mark.parametrize(
    ("cases", "version"), [(STOCK, "7.0.15"), (FIELDS, "9.1.0")], ids=["stock", "fields"]
)
def test_every_command_sends_the_events_of_a_real_server(cases: str, version: str) -> None:
    engine = Engine(Timekeeper("2026-01-01T00:00:00Z"), Ids(1), "redis", version=version)
    session = engine.session()
    engine.execute(session, [b"CONFIG", b"SET", b"notify-keyspace-events", b"KAmn"])
    listener = Listener(engine)
    wrong = {}
    for case in cases.splitlines():
        lines, _, expected = case.partition(" =>")
        for line in alternatives(lines):
            with suppress(CommandError):
                engine.execute(session, [word.encode() for word in shlex.split(line)])
            if (heard := listener.take()) != expected.split():
                wrong[line] = heard
    assert wrong == {}


class TestClasses:
    def test_keyevent_messages_are_keys(self, run: Run, listen: Listen) -> None:
        listener = listen("E$")
        run("SET k v")
        run("EXPIRE k 10")
        assert listener.heard == ["set:k"]

    def test_both_channels_of_one_event_come_together(self, run: Run, listen: Listen) -> None:
        listener = listen("KEg")
        run("MSET a 1 b 2")
        run("DEL a b")
        assert listener.heard == ["a:del", "del:a", "b:del", "del:b"]

    @pytest.mark.parametrize("flags", ["", "A", "g$x", "K", "E"])
    def test_no_events_without_class_and_channel(
        self, run: Run, listen: Listen, flags: str
    ) -> None:
        listener = listen(flags)
        run("SET k v")
        run("DEL k")
        assert listener.heard == []

    def test_they_end_with_the_parameter(self, run: Run, listen: Listen) -> None:
        listener = listen("KA")
        run("CONFIG", "SET", "notify-keyspace-events", "")
        run("SET k v")
        assert listener.heard == []

    def test_json_has_events_of_its_own(self, run: Run, listen: Listen) -> None:
        listener = listen("Kd")
        run("JSON.SET", "j", "$", '{"a": [1]}')
        run("JSON.ARRAPPEND j $.a 2")
        run("JSON.NUMINCRBY j $.a[0] 2")
        assert listener.heard == ["j:json.set", "j:json.arrappend", "j:json.numincrby"]

    def test_restoring_applies_parameters(self, engine: Engine, run: Run, listen: Listen) -> None:
        before = engine.snapshot()
        listener = listen("KA")
        engine.restore(before)
        run("SET k v")
        assert listener.heard == []


class TestExpiry:
    def test_a_key_expires_without_an_access(
        self, run: Run, clock: Timekeeper, listen: Listen
    ) -> None:
        listener = listen("Ex")
        run("SET a v EX 10")
        run("SET b v EX 5")
        run("SET c v EX 20")
        run("PERSIST c")
        clock.advance("4s")
        assert listener.heard == []
        clock.advance("1s")
        assert listener.take() == ["expired:b"]
        clock.advance("1h")
        assert listener.heard == ["expired:a"]

    def test_expiries_set_before_notifications_were_enabled(
        self, run: Run, clock: Timekeeper, listen: Listen
    ) -> None:
        run("SET a v EX 10")
        listener = listen("Kx")
        clock.advance("10s")
        assert listener.heard == ["a:expired"]

    def test_fields_expire_too(self, run: Run, clock: Timekeeper, listen: Listen) -> None:
        run("HSET h a 1 b 2")
        listener = listen("Kgh")
        run("HEXPIRE h 10 FIELDS 1 a")
        run("HEXPIRE h 20 FIELDS 1 b")
        listener.take()
        clock.advance("10s")
        assert listener.take() == ["h:hexpired"]
        clock.advance("10s")
        assert listener.heard == ["h:hexpired", "h:del"]

    def test_a_changed_expiry_has_no_event(
        self, run: Run, clock: Timekeeper, listen: Listen
    ) -> None:
        listener = listen("Kx")
        run("SET a v EX 10")
        run("EXPIRE a 100")
        clock.advance("50s")
        assert listener.heard == []
        clock.advance("50s")
        assert listener.heard == ["a:expired"]


class TestParameter:
    @pytest.mark.parametrize(
        ("flags", "shown"),
        [
            ("KEA", "AKE"), ("KEg$lshzxetd", "AKE"), ("g$lshzxe", "g$lshzxe"), ("mnKEA", "AKEm"),
            ("nKm", "nKm"), ("dtx", "xtd"), ("KK", "K"), ("", ""),
        ],
    )  # fmt: skip
    def test_it_is_shown_in_order(self, run: Run, flags: str, shown: str) -> None:
        run("CONFIG", "SET", "notify-keyspace-events", flags)
        assert run("CONFIG GET notify-keyspace-events")[1] == shown.encode()

    @pytest.mark.parametrize("flags", ["q", "K E", "KEA\n"])
    def test_other_letters_are_refused(self, run: Run, flags: str) -> None:
        assert run.error("CONFIG", "SET", "notify-keyspace-events", flags) == (
            "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - "
            "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
        )


def test_keys_expire_without_an_access() -> None:
    """The clock is running, so nothing but time moves it."""
    with Cloud() as cloud:
        kv = cloud.kv_server(dialect="redis")
        kv.execute("CONFIG", "SET", "notify-keyspace-events", "Ex")
        engine = kv._engine
        heard: list[object] = []
        listener = engine.session(transport="port")
        listener.deliver = heard.append
        engine.execute(listener, [b"SUBSCRIBE", b"__keyevent@0__:expired"])
        kv.execute("SET", "k", "v", "PX", "20")
        eventually(lambda: len(heard) == 2)
        assert heard[1] == [b"message", b"__keyevent@0__:expired", b"k"]


def test_a_lower_limit_evicts_immediately() -> None:
    with Cloud() as cloud:
        kv = cloud.kv_server(dialect="redis")
        kv.execute("SET", "k", "v")
        kv.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        kv.execute("CONFIG", "SET", "maxmemory", "1")
        assert kv._engine.eviction.evicted == 1
