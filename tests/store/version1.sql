BEGIN TRANSACTION;
CREATE TABLE attempts (
	id INTEGER NOT NULL, 
	run TEXT NOT NULL, 
	generator TEXT NOT NULL, 
	sample INTEGER NOT NULL, 
	task TEXT NOT NULL, 
	category TEXT NOT NULL, 
	level INTEGER NOT NULL, 
	machine TEXT NOT NULL, 
	candidate TEXT, 
	origin TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT attempts_once UNIQUE (run, generator, sample, task, machine), 
	FOREIGN KEY(run) REFERENCES runs (id), 
	FOREIGN KEY(machine) REFERENCES machines (fingerprint), 
	FOREIGN KEY(candidate) REFERENCES candidates (hash)
);
INSERT INTO "attempts" VALUES(1,'20261121-094314-4d4be2','g',0,'task000','elementwise',1,'81058c5867f6e6a3','c309a40080e0ecd627dba634cbbc4799c49ca18ef991c7099a55d107e00d6a4d','{"generator":"g","model":"","prompt_hash":"","sample":0,"parent":"","tokens_in":12,"tokens_out":0,"money_usd":0.25,"seconds":0.0,"human_edits":-1}');
INSERT INTO "attempts" VALUES(2,'20261121-094314-4d4be2','g',0,'task001','reduction',1,'81058c5867f6e6a3','65b8a716af736d557e7312e5f319351f1ddfe0d6fd0ce0f2aad2312b31836291','{"generator":"g","model":"","prompt_hash":"","sample":0,"parent":"","tokens_in":12,"tokens_out":0,"money_usd":0.25,"seconds":0.0,"human_edits":-1}');
CREATE TABLE candidates (
	hash TEXT NOT NULL, 
	language TEXT NOT NULL, 
	entry TEXT NOT NULL, 
	backward_entry TEXT NOT NULL, 
	files TEXT NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "candidates" VALUES('65b8a716af736d557e7312e5f319351f1ddfe0d6fd0ce0f2aad2312b31836291','torch','run','','[["kernel.py","# task001\ndef run(x):\n    return x\n"],["helper.py","\u00e9\u0000\n"]]');
INSERT INTO "candidates" VALUES('c309a40080e0ecd627dba634cbbc4799c49ca18ef991c7099a55d107e00d6a4d','torch','run','','[["kernel.py","# task000\ndef run(x):\n    return x\n"],["helper.py","\u00e9\u0000\n"]]');
CREATE TABLE cases (
	id TEXT NOT NULL, 
	task TEXT NOT NULL, 
	direction TEXT NOT NULL, 
	dims TEXT NOT NULL, 
	dtype TEXT NOT NULL, 
	layout TEXT NOT NULL, 
	distribution TEXT NOT NULL, 
	shape_category TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "cases" VALUES('1fb4dc4edc9da7ba58a834ec26f95334','task000','forward','[["M",5],["N",7]]','float32','contiguous','standard','small');
INSERT INTO "cases" VALUES('21f4170adebb191b6bf1a3eabe84dfc2','task000','forward','[["M",4],["N",7]]','float32','contiguous','standard','tiny');
INSERT INTO "cases" VALUES('7565c22431f26321d6118b6c67ba3b75','task001','forward','[["M",4],["N",7]]','float32','contiguous','standard','tiny');
INSERT INTO "cases" VALUES('bd3ccd4ce3067c5d82373a112be30fe7','task001','forward','[["M",5],["N",7]]','float32','contiguous','standard','small');
CREATE TABLE kerneleval_schema (
	version INTEGER NOT NULL, 
	changed_unix_s FLOAT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "kerneleval_schema" VALUES(1,1.79525419408470439906e+09);
CREATE TABLE machines (
	fingerprint TEXT NOT NULL, 
	device TEXT NOT NULL, 
	name TEXT NOT NULL, 
	arch TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (fingerprint)
);
INSERT INTO "machines" VALUES('81058c5867f6e6a3','cpu','a cpu','x86_64','{"device":"cpu","name":"a cpu","arch":"x86_64","memory_bytes":17179869184,"cache_bytes":33554432,"units":8,"driver":"6.1","torch":"2.13.0","triton":"","host":""}');
CREATE TABLE outcomes (
	"key" TEXT NOT NULL, 
	candidate TEXT NOT NULL, 
	case_id TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	protocol TEXT NOT NULL, 
	passed BOOLEAN NOT NULL, 
	stage TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	speedup FLOAT, 
	created_unix_s FLOAT NOT NULL, 
	format INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY ("key"), 
	CONSTRAINT outcomes_once UNIQUE (candidate, case_id, machine, protocol), 
	FOREIGN KEY(candidate) REFERENCES candidates (hash), 
	FOREIGN KEY(case_id) REFERENCES cases (id), 
	FOREIGN KEY(machine) REFERENCES machines (fingerprint), 
	FOREIGN KEY(protocol) REFERENCES protocols ("key")
);
INSERT INTO "outcomes" VALUES('62168dceb03e2b734274471c31c8c427700536fb6bb26fb41d1a099dcce13e6d','c309a40080e0ecd627dba634cbbc4799c49ca18ef991c7099a55d107e00d6a4d','1fb4dc4edc9da7ba58a834ec26f95334','81058c5867f6e6a3','6b9369cd303d5912',0,'correctness','wrong_output',NULL,1.79525419413364481927e+09,1,'{"stage":"correctness","reason":"wrong_output","message":"off by \u0000 \ud800 2","evidence":{},"replay":"x","passed":false}');
INSERT INTO "outcomes" VALUES('a0b255b929b90be9d7a086cb7ddb97f65aadbd3faf4befedc6e9555e0d84c08c','c309a40080e0ecd627dba634cbbc4799c49ca18ef991c7099a55d107e00d6a4d','21f4170adebb191b6bf1a3eabe84dfc2','81058c5867f6e6a3','6b9369cd303d5912',1,'','ok',1.5,1.79525419413355088234e+09,1,'{"timing":{"samples":{"candidate_ns":[1000.0,1000.3333333333334,1000.6666666666666,1001.0],"baseline_ns":[1500.0,1500.5,1501.0,1501.5],"candidate_event_ns":[],"baseline_event_ns":[],"calls":50,"sessions":[0,0,0,0],"empty_ns":12.5,"cache":"cold"},"speedup":1.5,"low":1.4849999999999999,"high":1.5150000000000001,"noise":0.01,"claim":"faster","device_time":"none"},"evidence":{"error":1e-07,"bound":"inf","worst":[0,3]},"passed":true}');
CREATE TABLE protocols (
	"key" TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "protocols" VALUES('6b9369cd303d5912','{"tier":"standard","baseline":"eager","shapes":"default","dtypes":[],"directions":[],"categories":[],"distributions":[],"timed":true,"timed_dtypes":[],"allow":["custom","mixed"],"tf32":false,"suite_seed":0,"version":1}');
CREATE TABLE run_cells (
	attempt INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	case_id TEXT NOT NULL, 
	PRIMARY KEY (attempt, position), 
	CONSTRAINT run_cells_once UNIQUE (attempt, case_id), 
	FOREIGN KEY(attempt) REFERENCES attempts (id), 
	FOREIGN KEY(case_id) REFERENCES cases (id)
);
INSERT INTO "run_cells" VALUES(1,0,'21f4170adebb191b6bf1a3eabe84dfc2');
INSERT INTO "run_cells" VALUES(1,1,'1fb4dc4edc9da7ba58a834ec26f95334');
INSERT INTO "run_cells" VALUES(2,0,'7565c22431f26321d6118b6c67ba3b75');
INSERT INTO "run_cells" VALUES(2,1,'bd3ccd4ce3067c5d82373a112be30fe7');
CREATE TABLE runs (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_unix_s FLOAT NOT NULL, 
	protocol TEXT NOT NULL, 
	"plan" TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(protocol) REFERENCES protocols ("key")
);
INSERT INTO "runs" VALUES('20261121-094314-4d4be2','first',1.7952541940991418362e+09,'6b9369cd303d5912','627755d99d60c0f9833df1ae1bafbcee16b814c9d8f0a0958f8e421d450efb23','{"generators":["g"],"machines":["81058c5867f6e6a3"],"not_evaluated":{"cuda":"no such device"}}');
CREATE TABLE verdicts (
	attempt INTEGER NOT NULL, 
	candidate TEXT NOT NULL, 
	task TEXT NOT NULL, 
	device TEXT NOT NULL, 
	verdict TEXT NOT NULL, 
	stage TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	track TEXT NOT NULL, 
	created_unix_s FLOAT NOT NULL, 
	format INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (attempt), 
	FOREIGN KEY(attempt) REFERENCES attempts (id)
);
INSERT INTO "verdicts" VALUES(1,'c309a40080e0ecd627dba634cbbc4799c49ca18ef991c7099a55d107e00d6a4d','task000','cpu','failed','correctness','wrong_output','custom',1.79525419413921546929e+09,1,'{"verdict":"failed","stage":"correctness","reason":"wrong_output","message":"","task":"task000","candidate":"c309a40080e0ecd627dba634cbbc4799c49ca18ef991c7099a55d107e00d6a4d","track":"custom","trust":{"level":"standard","layers":["process","rlimits"],"missing":["netns: not permitted"]},"machine":{"device":"cpu","name":"a cpu","arch":"x86_64","memory_bytes":17179869184,"cache_bytes":33554432,"units":8,"driver":"6.1","torch":"2.13.0","triton":"","host":""},"protocol":{"tier":"standard","baseline":"eager","shapes":"default","dtypes":[],"directions":[],"categories":[],"distributions":[],"timed":true,"timed_dtypes":[],"allow":["custom","mixed"],"tf32":false,"suite_seed":0,"version":1},"speedup":{"value":1.5,"low":1.4,"high":"inf","claim":"faster","cells":2},"findings":[{"check":"decoy","level":"warn","message":"late"}],"replay":"kerneleval check kernel.py --task task000","seconds":0.5}');
CREATE INDEX attempts_by_candidate ON attempts (candidate, task, machine);
COMMIT;
